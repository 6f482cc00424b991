/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A server that lies changes a word between two looks of its client. The client's rare ways are
 * compiled here once more, with a step of the server behind each acquire: what they check and what
 * they use has to come from one look.
 */
#include "ipc_test.h"

#include "ipc_client.h"
#include "reread.h"

void (*reread_between)(void);

#define RESP_MAX 4000

static struct crpc_ipc_client *c;
static uint64_t next_word;

static void
change_lone_word(void)
{
	crpc_store_release(&c->lone->word, next_word);
}

/*
 * The lone slot first has a status, which takes the rare way, then another word of any sequence
 * number and size. The client's copy of an answer there has one line.
 */
static void
a_lone_word_is_read_once(void **state)
{
	struct crpc_ipc_server *s = new_server(1, 4, CRPC_IPC_SMALL, RESP_MAX);
	struct crpc_done done;
	uint32_t i, n, taken = 0;

	for (i = 0; i < 3000; i++) {
		assert_non_null(c = new_client(s));
		assert_int_equal(call(c, "x", 1, 1), 0);
		assert_int_equal(call(c, "x", 1, 2), 0); /* not alone: the rare way looks first */
		crpc_store_release(&c->lone->word,
			ipc_word(c->lone_seq, IPC_SIZE_STATUS + EIO, IPC_SLOT_REPLY));
		next_word = ipc_word(c->lone_seq ^ (uint32_t)(rng() % 2) << 30,
			(uint32_t)(rng() % (RESP_MAX + 1)),
			rng() % 4 == 0 ? 0 : IPC_SLOT_REPLY);
		reread_between = change_lone_word;
		n = crpc_ipc_client_poll(c, now_ns(), &done, 1);
		reread_between = NULL;
		taken += n;
		if (n != 0 && done.status == 0)
			assert_true(done.data == c->lone_data && done.len <= CRPC_IPC_SMALL);
		crpc_ipc_client_close(c);
		crpc_ipc_server_reap(s);
	}
	assert_true(taken > 100);
	crpc_ipc_server_free(s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lone_word_is_read_once),
	};

	rng_init();
	return cmocka_run_group_tests_name("ipc_reread", tests, make_dir, remove_dir);
}
