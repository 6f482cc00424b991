/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts of xferbench: the pattern that proves content, ratios of slices, what bounds a lane, the
 * options, and a group with one lane that does its work and one that spoils a byte.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app_fail.h"
#include "crpc_clock.h"
#include "crpc_unpack.h"
#include "xb.h"

#define SIZE 10000u /* no multiple of a word's eight bytes and more */

/* Any byte that differs is found, and its word named; another message's bytes are found at once. */
static void
pattern_shows_each_byte(void **state)
{
	static uint8_t buf[SIZE - 3];
	uint32_t i;

	xb_fill(buf, sizeof(buf), 7);
	assert_int_equal(xb_compare(buf, sizeof(buf), 7), 0);
	assert_int_equal(xb_compare(buf, sizeof(buf), 8), 1);
	for (i = 0; i < sizeof(buf); i++) {
		buf[i] ^= 0x10;
		assert_int_equal(xb_compare(buf, sizeof(buf), 7), i / 8 * 8 + 1);
		buf[i] ^= 0x10;
	}
	/* A chunk at the place of another one. */
	memmove(buf, buf + 4096, 4096);
	assert_int_equal(xb_compare(buf, sizeof(buf), 7), 1);
}

static void
add(struct app_series *s, double value, double line_ns)
{
	const struct app_slice slice = {.value = value, .line_ns = {line_ns, line_ns}, .ns = 1};

	assert_int_equal(app_series_add(s, &slice), 0);
}

/* Only slices that stood beside each other in the group's state are divided. */
static void
ratio_is_of_one_state(void **state)
{
	struct app_series a = {0}, b = {0};
	struct app_group g = {.trial.state = APP_STATE_NEAR};
	uint32_t i;

	assert_true(app_series_ratio(&a, &b, g.trial.state) == 0);
	for (i = 0; i < 3; i++) {
		add(&a, 6 + i, 100);
		add(&b, 2, 100);
		add(&a, 1, 500);
		add(&b, 100, 500);
	}
	assert_true(app_series_ratio(&a, &b, g.trial.state) > 3.49 &&
		app_series_ratio(&a, &b, g.trial.state) < 3.51);
	g.trial.state = APP_STATE_FAR;
	assert_true(app_series_ratio(&a, &b, g.trial.state) < 0.011);
	app_series_fini(&a);
	app_series_fini(&b);
}

static void
bound_names_what_stopped_most(void **state)
{
	struct xb_lane l = {.base.c = &l.c, .c.path = XB_WRITE, .count[XB_CHUNKS] = 1000};

	assert_non_null(strstr(xb_bound(&l.base), "post"));
	l.count[XB_BLOCKED_WINDOW] = 400;
	assert_non_null(strstr(xb_bound(&l.base), "wire: the window"));
	l.count[XB_BLOCKED_QUEUE] = 500;
	assert_non_null(strstr(xb_bound(&l.base), "queue"));
	l.count[XB_BLOCKED_SLOTS] = 600;
	assert_non_null(strstr(xb_bound(&l.base), "slots"));
	/* a turn that fills an empty window of 192 is stopped once in 192 chunks */
	memset(l.count, 0, sizeof(l.count));
	l.count[XB_CHUNKS] = 192000;
	l.count[XB_BLOCKED_WINDOW] = 1000;
	l.c.window = 256;
	assert_non_null(strstr(xb_bound(&l.base), "wire: the window"));
	l.c.window = 4;
	assert_non_null(strstr(xb_bound(&l.base), "found room"));
}

static int
parse(struct xb_opt *o, const char *a, const char *b)
{
	char text[2][64], *argv[2] = {text[0], text[1]};

	snprintf(text[0], sizeof(text[0]), "%s", a);
	snprintf(text[1], sizeof(text[1]), "%s", b);
	return xb_options_parse(o, b[0] != '\0' ? 2 : a[0] != '\0', argv);
}

static void
options_have_defaults_and_ranges(void **state)
{
	static const char *const bad[][2] = {{"--size", "4095"}, {"--size", "2Gi"},
		{"--chunk", "5000"}, {"--chunk", "2048"}, {"--window", "0"}, {"--window", "257"},
		{"--rails", "9"}, {"--path", "fast"}, {"--engine", "fpga"}, {"--depth", "17"},
		{"--unpack", "later"},
		{"--json", "/nowhere/x"}, {"--frobnicate", "1"}};
	struct xb_opt o;
	uint32_t i;

	assert_int_equal(parse(&o, "", ""), 0);
	assert_int_equal(o.sizes.v[0], 64 << 20);
	assert_int_equal(o.chunks.v[0], 512 << 10);
	assert_int_equal(o.windows.v[0], 16);
	assert_int_equal(o.paths.n, 2);
	assert_true(o.transports.n >= 3);
	assert_int_equal(parse(&o, "--size=4Ki,1Gi", ""), 0);
	assert_int_equal(xb_options_memory(&o), 1u << 30);
	app_fail_hold(true);
	for (i = 0; i < CRPC_DIM(bad); i++)
		if (parse(&o, bad[i][0], bad[i][1]) != APP_EXIT_USAGE)
			fail_msg("%s %s was taken", bad[i][0], bad[i][1]);
	app_fail_hold(false);
}

/*
 * However a chunk gets to the engine its pieces are where they belong, cut or whole, until the job
 * is done; an engine is made for each chunk where that is asked for, and only there.
 */
static void
unpacks_the_same_in_every_way(void **state)
{
	enum { LEN = 1 << 20, FIRST = 3 * 8192 + 5 };
	uint8_t *src = malloc(LEN), *dst = malloc(LEN);
	const struct crpc_unpack_desc desc[] = {{.src = src, .dst = dst, .len = FIRST},
		{.src = src + FIRST, .dst = dst + FIRST, .len = LEN - FIRST}};
	struct crpc_unpack *u;
	uint64_t job[3], made;
	uint32_t how, i;

	xb_unpack_register();
	for (how = 0; how < XB_UNPACKS; how++) {
		u = xb_unpack_create(how, XB_CPU, NULL);
		assert_non_null(u);
		assert_int_equal(crpc_unpack_attach(u, src, LEN), 0);
		xb_fill(src, LEN, how);
		memset(dst, 0, LEN);
		made = crpc_unpack_states_made();
		for (i = 0; i < 3; i++) {
			assert_int_equal(crpc_unpack_submit(u, desc, 2, &job[i]), 0);
			if (how == XB_REMADE && i < 2) { /* one at a time */
				assert_int_equal(crpc_unpack_submit(u, desc, 2, &job[2]), -EAGAIN);
				assert_int_equal(crpc_unpack_done(u, job[i]), 0);
			}
		}
		crpc_unpack_kick(u);
		assert_int_equal(crpc_unpack_done(u, job[2]), 0);
		assert_int_equal(xb_compare(dst, LEN, how), 0);
		assert_int_equal(crpc_unpack_states_made() - made, how == XB_REMADE ? 3 : 0);
		assert_int_equal(crpc_unpack_stop(u), 0);
		crpc_unpack_detach(u, src);
		crpc_unpack_free(u);
	}
	free(src);
	free(dst);
}

/* ---- a group ---- */

static int
spoil(struct app_lane *l, int side)
{
	if (side == 1)
		memcpy(l->c->mem[1].recv, l->c->mem[0].send, l->c->size);
	l->c->mem[1].recv[l->c->size - 1] ^= 1;
	return 1;
}

static int
fail_late(struct app_lane *l, int side)
{
	return app_lane_fail(l, -EIO, "side %d has had enough", side);
}

static void
group_leaves_out_what_fails(void **state)
{
	struct xb_way spoils = *(const struct xb_way *)xb_ways[XB_MEMCPY], fails = spoils;
	static struct app_party party = {.flag = party.own_flag, .one_host = true};
	struct xb_opt o = {.length = {.repeat = 3, .slice_ms = 1}, .verify = true};
	struct xb_run run = {.opt = &o, .party = &party};
	struct app_group g = xb_group(&run);
	struct app_case p = {.transport = XB_MEMCPY, .size = SIZE, .depth = 1};
	uint8_t *mem = malloc(2 * SIZE);

	assert_non_null(mem);
	run.mem[0].send = mem;
	run.mem[1].recv = mem + SIZE;
	spoils.turn = spoil;
	fails.turn = fail_late;
	assert_non_null(xb_group_add(&run, &g, &p));
	assert_non_null(xb_group_add(&run, &g, &p));
	assert_non_null(xb_group_add(&run, &g, &p));
	p.transport = XB_MEMCPY_TWO;
	assert_non_null(xb_group_add(&run, &g, &p));
	g.lane[1]->way = &spoils.base;
	g.lane[2]->way = &fails.base;
	app_group_measure(&g);
	assert_int_equal(party.failed, 2);
	assert_int_equal(g.lane[0]->series[XB_RATE].n, 3);
	assert_true(g.lane[0]->series[XB_RATE].slice[0].value > 0);
	assert_int_equal(g.lane[1]->series[XB_RATE].n, 0);
	assert_non_null(strstr(g.lane[1]->why, "differs"));
	assert_int_equal(g.lane[2]->series[XB_RATE].n, 0);
	assert_non_null(strstr(g.lane[2]->why, "has had enough"));
	assert_int_equal(g.lane[3]->series[XB_RATE].n, 3);
	assert_ptr_equal(xb_group_find(&g, XB_MEMCPY), g.lane[0]);
	assert_null(xb_group_find(&g, XB_UCX));
	app_group_fini(&g);
	free(mem);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pattern_shows_each_byte),
		cmocka_unit_test(ratio_is_of_one_state),
		cmocka_unit_test(bound_names_what_stopped_most),
		cmocka_unit_test(options_have_defaults_and_ranges),
		cmocka_unit_test(unpacks_the_same_in_every_way),
		cmocka_unit_test(group_leaves_out_what_fails),
	};

	crpc_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
