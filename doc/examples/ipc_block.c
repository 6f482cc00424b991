/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A call that carries a block of memory instead of copying it: the client fills a block, the server
 * turns its letters over in place and sends the same block back. Both run here in one process,
 * turn by turn, as two members of the arena; nothing changes when they are two.
 *
 *     cc ipc_block.c $(pkg-config --cflags --libs crpc_ipc) -o ipc_block && ./ipc_block
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <crpc_arena.h>
#include <crpc_clock.h>
#include <crpc_ipc.h>
#include <crpc_log.h>
#include <crpc_shm.h>

#define BLOCK 100000

static int
fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, crpc_log_last());
	return 1;
}

/* A segment that is all arena. */
static struct crpc_arena *
make_arena(struct crpc_shm **seg, const char *name)
{
	struct crpc_shm_conf conf = {.name = name};
	uint64_t len = crpc_arena_size(NULL, 64 << 20);

	conf.size = 4096 + len;
	*seg = crpc_shm_create(&conf);
	if (*seg == NULL || crpc_arena_format(*seg, 4096, len, NULL) != 0)
		return NULL;
	crpc_shm_ready(*seg);
	return crpc_arena_attach(*seg, 4096); /* others: crpc_shm_attach() first */
}

static void
serve(struct crpc_ipc_server *server)
{
	struct crpc_ipc_block block;
	struct crpc_req req;
	char *text, c;
	uint32_t i, len;

	crpc_ipc_server_reap(server);
	if (crpc_ipc_server_recv(server, crpc_clock_ns(), &req, 1) == 0)
		return;
	/* What another process says is copied once and checked. */
	memcpy(&len, req.data, sizeof(len));
	if (crpc_ipc_server_block(server, req.token, &block) != 0 || len > block.size) {
		crpc_ipc_server_release(server, crpc_clock_ns(), req.token);
		return;
	}
	text = block.data;
	for (i = 0; i < len / 2; i++) {
		c = text[i];
		text[i] = text[len - 1 - i];
		text[len - 1 - i] = c;
	}
	crpc_ipc_server_reply_ref(server, crpc_clock_ns(), req.token, block.ref, &len, sizeof(len));
}

static int
call(struct crpc_ipc_client *client, struct crpc_arena_cache *member,
	struct crpc_ipc_server *server)
{
	struct crpc_ipc_block block;
	struct crpc_done done;
	uint32_t len = BLOCK;
	uint64_t ref;
	char *text = crpc_arena_alloc(member, BLOCK, &ref);

	if (text == NULL)
		return fail("block");
	memset(text, '.', BLOCK);
	memcpy(text + BLOCK - 5, "olleh", 5);
	if (crpc_ipc_client_call_ref(
		    client, crpc_clock_ns(), ref, &len, sizeof(len), sizeof(len), 1) != 0)
		return fail("call");
	while (crpc_ipc_client_poll(client, crpc_clock_ns(), &done, 1) == 0)
		serve(server);
	if (done.status != 0 || crpc_ipc_client_block(client, &done, &block) != 0)
		return fail("answer");
	printf("%.5s, %u bytes, not copied\n", (const char *)block.data, BLOCK);
	/* The next poll would free it; to keep it: crpc_ipc_client_take(). */
	return memcmp(block.data, "hello", 5) != 0;
}

int
main(void)
{
	char name[40], arena_name[48];
	struct crpc_ipc_server_conf server_conf = {.name = name};
	struct crpc_ipc_client_conf client_conf = {.name = name};
	struct crpc_ipc_server *server;
	struct crpc_ipc_client *client;
	struct crpc_arena *arena;
	struct crpc_shm *seg;
	int rc;

	crpc_clock_init();
	snprintf(name, sizeof(name), "ipc_block_%d", (int)getpid());
	snprintf(arena_name, sizeof(arena_name), "%s.arena", name);
	arena = make_arena(&seg, arena_name);
	if (arena == NULL)
		return fail("arena");
	server_conf.arena = crpc_arena_join(arena, NULL);
	client_conf.arena = crpc_arena_join(arena, NULL);
	if (server_conf.arena == NULL || client_conf.arena == NULL)
		return fail("member");
	server = crpc_ipc_server_create(&server_conf);
	if (server == NULL)
		return fail("server");
	client = crpc_ipc_client_connect(&client_conf);
	if (client == NULL)
		return fail("client");
	rc = call(client, client_conf.arena, server);
	crpc_ipc_client_close(client);
	crpc_ipc_server_free(server);
	crpc_arena_leave(client_conf.arena);
	crpc_arena_leave(server_conf.arena);
	crpc_arena_detach(arena);
	crpc_shm_free(seg);
	return rc;
}
