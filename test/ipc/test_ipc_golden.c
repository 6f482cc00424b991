/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bytes of a fresh segment and of one call, against test/golden/ipc_shm_v4.txt: a change of
 * the layout is a new version, never an accident. What differs by process (pid, uid, start time,
 * incarnation) is zeroed in the copy. A mismatch prints what was found.
 */
#include "ipc_test.h"
#include "golden.h"
#include "ipc_client.h"
#include "ipc_run.h"
#include "ipc_server.h"

static void
print_slot(FILE *f, const char *what, struct crpc_ipc_server *s, uint64_t off)
{
	uint8_t copy[16];

	memcpy(copy, crpc_shm_ptr(s->seg, off, sizeof(copy)), sizeof(copy));
	golden_bytes(f, what, off, copy, sizeof(copy));
}

/* Answers of 5 bytes to 4 requests that are not alone. */
static void
print_run(FILE *f, struct crpc_ipc_server *s, struct crpc_ipc_client *c)
{
	static const uint64_t cookies[4];
	struct crpc_done done[8];
	struct crpc_req req[8];
	uint8_t copy[4 * CRPC_CACHE_LINE];

	assert_ok(release(s, s->peers[0].tokens[2])); /* the message */
	while (poll_done(c, done, 8) != 0)
		;
	assert_int_equal(call_burst(c, "1111222233334444", 4, cookies, 4), 4);
	assert_int_equal(take(s, req, 8), 4);
	assert_int_equal(s->peers[0].resp_seq, 4);
	/* The ring's first lap has none. */
	s->peers[0].resp_seq = c->resp_seq = 20;
	c->head = ipc_slot_at(c->resp, 4, c->resp_slot);
	assert_int_equal(reply_burst(s, req, "aaaaabbbbbcccccddddd", 5, 4), 4);
	memcpy(copy, c->head, sizeof(copy));
	golden_bytes(
		f, "client 0: run of 4 answers", s->lay.resp_off + 4 * s->lay.resp_slot, copy, 16);
	golden_bytes(f, "client 0: their bytes", s->lay.resp_off + 8 * s->lay.resp_slot - 32,
		copy + ipc_run_data(4, 5), 32);
	assert_int_equal(poll_done(c, done, 8), 4);
}

static char *
describe(void)
{
	struct crpc_ipc_server *s = new_server(3, 5, 100, 40);
	struct crpc_ipc_client *c;
	struct crpc_shm_header *h;
	uint8_t copy[512];
	struct crpc_req req[8];
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	assert_non_null(f);
	assert_non_null(s);
	memcpy(copy, crpc_shm_header(s->seg), sizeof(copy));
	h = (struct crpc_shm_header *)(void *)copy;
	h->owner_pid = 0;
	h->owner_uid = 0;
	h->owner_start = 0;
	h->incarnation = 0;
	golden_bytes(
		f, "fresh segment: 3 clients, depth 5, request 100, response 40", 0, copy, 256);

	assert_non_null(c = new_client(s));
	assert_ok(call(c, "alone", 5, 9));
	print_slot(f, "client 0: lone request", s, s->lay.req_off + s->lay.lone_off);
	for (uint32_t i = 0; i < 2; i++)
		assert_ok(call(c, "request", i == 1 ? 0 : 7, i));
	assert_ok(crpc_ipc_client_notify(c, now_ns(), "message", 7));
	assert_int_equal(take(s, req, 4), 4);
	assert_ok(reply(s, req[0].token, "answer", 6));
	assert_ok(reply(s, req[2].token, "answer", 6));
	assert_ok(crpc_ipc_server_fail(s, now_ns(), req[1].token, -ETIMEDOUT));
	print_slot(f, "client 0: claim", s, IPC_CTL_OFF);
	for (uint32_t i = 0; i < 3; i++)
		print_slot(f, "client 0: request", s, s->lay.req_off + i * s->lay.req_slot);
	for (uint32_t i = 1; i < 3; i++)
		print_slot(f, "client 0: response", s, s->lay.resp_off + i * s->lay.resp_slot);
	print_slot(f, "client 0: lone answer", s, s->lay.req_off + s->lay.lone_off);
	print_run(f, s, c);
	fclose(f);
	crpc_ipc_client_close(c);
	crpc_ipc_server_free(s);
	return text;
}

TEST(layout_version_4_has_these_bytes)
{
	char *found, *pid;

	if (sysconf(_SC_PAGESIZE) != 4096)
		skip(); /* the file's size is whole pages */
	found = describe();
	/* The claim is 8 bytes; the pid behind it is a process's. */
	pid = strstr(found, "client 0: claim\n");
	assert_non_null(pid);
	memcpy(pid + strlen("client 0: claim\n000280:") + 8 * 3, " 00 00 00 00", 12);
	golden_text(GOLDEN_FILE, found);
}

TEST_MAIN(make_dir, remove_dir)
