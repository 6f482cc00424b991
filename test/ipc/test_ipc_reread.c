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
TEST(a_lone_word_is_read_once)
{
	struct crpc_ipc_server *s = keep_server(new_server(1, 4, CRPC_IPC_SMALL, RESP_MAX));
	struct crpc_done done;
	uint32_t i, n, taken = 0;

	for (i = 0; i < 3000; i++) {
		assert_non_null(c = new_client(s));
		assert_ok(call(c, "x", 1, 1));
		assert_ok(call(c, "x", 1, 2)); /* not alone: the rare way looks first */
		crpc_store_release(&c->lone->word,
			ipc_word(c->lone_seq, IPC_SIZE_STATUS + EIO, IPC_SLOT_REPLY));
		next_word = ipc_word(c->lone_seq ^ (uint32_t)(rng() % 2) << 30,
			(uint32_t)(rng() % (RESP_MAX + 1)), rng() % 4 == 0 ? 0 : IPC_SLOT_REPLY);
		reread_between = change_lone_word;
		n = poll_done(c, &done, 1);
		reread_between = NULL;
		taken += n;
		if (n != 0 && done.status == 0)
			assert_true(done.data == c->lone_data && done.len <= CRPC_IPC_SMALL);
		crpc_ipc_client_close(c);
		crpc_ipc_server_reap(s);
	}
	assert_true(taken > 100);
}

TEST_MAIN(make_dir, remove_dir)
