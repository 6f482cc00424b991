/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Placement and ownership are partitions: for every number of lcores, daemons and clients each
 * daemon and each client has exactly one lcore, and each key exactly one owner, in the rank that it
 * had without daemons.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "app_keys.h"
#include "place.h"

#define SEED 20260101

/* Who sits on each lcore: no daemon or client twice, none left out, colocated ones at home. */
static void
check_place(uint32_t lcores, uint32_t daemons, uint32_t clients, bool colocate)
{
	struct kv_place place[KV_SEATS_MAX];
	uint32_t used = kv_place(place, lcores, daemons, clients, colocate);
	uint32_t i, c, next_daemon = 0, next_client = 0, home;

	assert_true(used >= 1 && used <= lcores && used <= KV_SEATS_MAX);
	for (i = 0; i < used; i++) {
		if (place[i].daemon_to > place[i].daemon_from) {
			assert_int_equal(place[i].daemon_from, next_daemon);
			next_daemon = place[i].daemon_to;
		}
		for (c = place[i].client_from; c < place[i].client_to; c++) {
			assert_int_equal(c, next_client++);
			home = kv_home(c, clients, daemons);
			assert_true(home < daemons);
			if (place[i].daemon_to > place[i].daemon_from)
				assert_true(home >= place[i].daemon_from &&
					home < place[i].daemon_to);
		}
		/* Nobody sits there for nothing; the main lcore has daemon 0. */
		assert_true(place[i].daemon_to > place[i].daemon_from ||
			place[i].client_to > place[i].client_from);
	}
	assert_int_equal(place[0].daemon_from, 0);
	assert_true(place[0].daemon_to > 0);
	assert_int_equal(next_daemon, daemons);
	assert_int_equal(next_client, clients);
	if (colocate || lcores <= daemons)
		assert_int_equal(used, lcores < daemons ? lcores : daemons);
}

static void
everybody_has_one_lcore(void **state)
{
	static const uint32_t lcores[] = {1, 2, 3, 4, 7, 16, 31, 32, 33, 64, 128, 500};
	uint32_t l, daemons, clients;

	for (l = 0; l < CRPC_DIM(lcores); l++)
		for (daemons = 1; daemons <= CRPC_KV_DAEMONS_MAX; daemons++)
			for (clients = 0; clients <= 70; clients++) {
				check_place(lcores[l], daemons, clients, false);
				check_place(lcores[l], daemons, clients, true);
			}
}

/* One daemon sits as it always did: alone if there is another lcore, else with its clients. */
static void
one_daemon_is_apart_if_it_can(void **state)
{
	struct kv_place place[KV_SEATS_MAX];

	assert_int_equal(kv_place(place, 1, 1, 16, false), 1);
	assert_int_equal(place[0].client_to, 16);
	assert_int_equal(kv_place(place, 3, 1, 16, false), 3);
	assert_int_equal(place[0].client_to, 0);
	assert_int_equal(place[1].client_to, 8);
	assert_int_equal(place[2].client_to, 16);
	assert_int_equal(kv_place(place, 3, 1, 1, false), 2);
	assert_int_equal(kv_place(place, 3, 1, 16, true), 1);
	assert_int_equal(kv_place(place, 2, 2, 16, false), 2);
	assert_int_equal(place[0].client_to, 8);
	assert_int_equal(place[1].daemon_from, 1);
	assert_int_equal(place[1].client_from, 8);
}

/* A daemon is home of consecutive clients; no daemon of more than kv_home_max(). */
static void
homes_are_equal_parts(void **state)
{
	uint32_t daemons, clients, d, c, from, to;

	for (daemons = 1; daemons <= CRPC_KV_DAEMONS_MAX; daemons++)
		for (clients = 1; clients <= 130; clients++)
			for (d = 0; d < daemons; d++) {
				from = kv_home_first(d, clients, daemons);
				to = kv_home_first(d + 1, clients, daemons);
				assert_true(to >= from);
				assert_true(to - from <= kv_home_max(clients, daemons));
				for (c = from; c < to; c++)
					assert_int_equal(kv_home(c, clients, daemons), d);
			}
	assert_int_equal(kv_home_first(0, 130, 32), 0);
	assert_int_equal(kv_home_first(32, 130, 32), 130);
}

/* One way for a hash: local at its owner, forwarded at the others of the rank, else remote. */
static void
check_hash(uint32_t hash, uint32_t ranks, uint32_t daemons)
{
	uint32_t owner = kv_owner(hash, ranks * daemons), home, first, local = 0;
	enum kv_path path;

	assert_true(owner < ranks * daemons);
	assert_int_equal(owner / daemons, kv_owner(hash, ranks));
	for (home = 0; home < ranks * daemons; home++) {
		first = home / daemons * daemons;
		path = kv_path(owner, home, first, daemons);
		local += path == CRPC_KV_LOCAL;
		assert_int_equal(path,
			owner == home                               ? CRPC_KV_LOCAL
				: owner / daemons == home / daemons ? CRPC_KV_FORWARDED
								    : CRPC_KV_REMOTE);
	}
	assert_int_equal(local, 1);
}

/*
 * Owners divide the hashes into consecutive parts: checked at both sides of every border, and at
 * random hashes.
 */
static void
every_key_has_one_owner(void **state)
{
	static const uint32_t ranks[] = {1, 2, 3, 5, 8, 17}, counts[] = {1, 2, 3, 4, 7, 32};
	uint64_t rng = SEED, border;
	uint32_t r, d, o, n, i;

	for (r = 0; r < CRPC_DIM(ranks); r++)
		for (d = 0; d < CRPC_DIM(counts); d++) {
			n = ranks[r] * counts[d];
			for (o = 1; o < n; o++) {
				border = (((uint64_t)o << 32) + n - 1) / n;
				assert_int_equal(kv_owner((uint32_t)border, n), o);
				assert_int_equal(kv_owner((uint32_t)border - 1, n), o - 1);
				check_hash((uint32_t)border, ranks[r], counts[d]);
			}
			check_hash(0, ranks[r], counts[d]);
			check_hash(UINT32_MAX, ranks[r], counts[d]);
			for (i = 0; i < 100; i++)
				check_hash((uint32_t)crpc_random(&rng), ranks[r], counts[d]);
		}
}

/*
 * Daemons get lcores on the NIC's node; clients those beside them, then those elsewhere.
 */
static void
lcores_by_node(void **state)
{
	static const int node[] = {0, 0, 1, 1, 0, 1}, nodes[] = {1, 0, 1};
	static const unsigned int near_nic[] = {0, 2, 3, 5, 1, 4};
	unsigned int lcore[] = {0, 1, 2, 3, 4, 5}, unknown[] = {7, 8, 9};

	/* The main lcore stays although the NIC is on the other node. */
	kv_place_order(lcore, node, 6, 1);
	assert_memory_equal(lcore, near_nic, sizeof(lcore));
	/* Without a NIC the main lcore's node counts. */
	kv_place_order(unknown, nodes, 3, -1);
	assert_int_equal(unknown[1], 9);
	assert_int_equal(unknown[2], 8);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(everybody_has_one_lcore),
		cmocka_unit_test(one_daemon_is_apart_if_it_can),
		cmocka_unit_test(homes_are_equal_parts),
		cmocka_unit_test(lcores_by_node),
		cmocka_unit_test(every_key_has_one_owner),
	};

	return cmocka_run_group_tests_name("benchkv_place", tests, NULL, NULL);
}
