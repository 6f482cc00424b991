/* SPDX-License-Identifier: BSD-3-Clause */
#include <stdarg.h>

#include <errno.h>

#include "step_rig.h"

struct soft_mlx5_step step;
struct scene scene;
struct met met;
bool verbose;
const char *program;

static const char *const kind_names[KINDS] = {"rc", "dc", "ud"};

void
scene_begin(uint64_t seed, enum kind kind)
{
	memset(&scene, 0, sizeof(scene));
	scene.seed = seed;
	scene.kind = kind;
	scene.protocol = kind == KIND_UD ? &udrpc_protocol : &copyrpc_protocol;
	scene.rng = mix(seed);
	scene.now = 1000000;
	if (step.start(seed) != 0)
		fail("start of step mode");
}

void
fail_at(int line, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s seed %" PRIu64 ", line %d: ", kind_names[scene.kind], scene.seed, line);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nlog: %s\n", crpc_log_last());
	if (verbose)
		(void)step.dump(SOFT_MLX5_STEP_ALL, stderr);
	fprintf(stderr, "run it again: soft-mlx5 --progress step -- %s --kind %s --seed %" PRIu64
		" --verbose\n", program, kind_names[scene.kind], scene.seed);
	exit(1);
}

uint64_t
mix(uint64_t z)
{
	/* SplitMix64 (Steele, Lea, Flood 2014). */
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint32_t
rnd(uint32_t below)
{
	return (uint32_t)(crpc_random(&scene.rng) % below);
}

bool
one_in(uint32_t n)
{
	return rnd(n) == 0;
}

void
bytes_make(uint8_t *p, uint32_t len, uint64_t key)
{
	uint64_t x = mix(key + scene.seed * 31);

	for (uint32_t i = 0; i < len; i++) {
		p[i] = (uint8_t)(x >> 24);
		x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
	}
}

bool
bytes_are(const uint8_t *p, uint32_t len, uint64_t key)
{
	static uint8_t want[MSG_ROOM];

	bytes_make(want, len, key);
	return memcmp(p, want, len) == 0;
}

bool
is_rejected(uint32_t id)
{
	return mix(id * 3 + scene.seed) % 13 == 0;
}

bool
is_released(uint32_t id)
{
	return mix(id * 5 + scene.seed) % 17 == 0;
}

uint32_t
reply_len(uint32_t id, uint32_t resp_max)
{
	uint64_t h = mix(id * 7 + scene.seed);

	return h % 5 == 0 ? resp_max : (uint32_t)((h >> 8) % (resp_max + 1));
}

void
do_steps(uint32_t n)
{
	while (n-- != 0) {
		scene.now += rnd(1500);
		met.passes += step.step(scene.now, NULL) == 0; /* Or all have vanished. */
	}
}

void
done_bad(const struct record *r, uint32_t id, int status, bool broken, bool late)
{
	switch (status) {
	case -EUCLEAN:
		met.rejected++;
		check(is_rejected(id) && r->executed == 1);
		break;
	case -ECANCELED:
		met.cancelled++;
		check(r->cancelled);
		break;
	case -ECONNRESET:
		met.reset++;
		check(broken);
		break;
	case -ETIMEDOUT:
		met.late++;
		check(late);
		break;
	default:
		fail("call %u ends with %d", id, status);
	}
}
