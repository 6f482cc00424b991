/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Not a test: GB/s that each conversion reads and writes, in every variant that this CPU has,
 * through the caches and around them, beside memcpy(). Best of some repeats, turn by turn.
 *
 *     bench_tensor [MiB of f32]...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_clock.h"
#include "crpc_util.h"
#include "tensor_convert.h"

#define REPEATS 15
#define KINDS   5

static const char *const kinds[KINDS] = {
		"f32 to bf16", "bf16 to f32", "f32 to f16", "f16 to f32", "memcpy"};

static double
once(const struct tensor_convert *v, uint32_t kind, float *f, uint16_t *h, size_t n, bool stream)
{
	uint64_t t0 = crpc_clock_ticks();
	double bytes = 6.0 * (double)n;

	switch (kind) {
	case 0:
		v->f32_to_bf16(h, f, n, stream);
		break;
	case 1:
		v->bf16_to_f32(f, h, n, stream);
		break;
	case 2:
		v->f32_to_f16(h, f, n, stream);
		break;
	case 3:
		v->f16_to_f32(f, h, n, stream);
		break;
	default:
		memcpy(h, f, n * sizeof(*h));
		bytes = 4.0 * (double)n;
	}
	__asm__ __volatile__("" : : "r"(f), "r"(h) : "memory");
	return bytes / (double)crpc_clock_ticks_to_ns(crpc_clock_ticks() - t0);
}

static void
measure(size_t mib)
{
	size_t n = (mib << 20) / sizeof(float);
	float *f = aligned_alloc(64, n * sizeof(*f));
	uint16_t *h = aligned_alloc(64, n * sizeof(*h));
	double best[3][2][KINDS] = {0};
	const struct tensor_convert *v;
	uint32_t r, i, kind, stream;

	if (f == NULL || h == NULL) {
		fprintf(stderr, "bench_tensor: no memory for %zu MiB\n", mib);
		exit(2);
	}
	memset(f, 0x3f, n * sizeof(*f));
	memset(h, 0x3f, n * sizeof(*h));
	for (r = 0; r < REPEATS; r++)
		for (i = 0; (v = __crpc_tensor_convert[i]) != NULL; i++)
			for (kind = 0; kind < KINDS && v->usable(); kind++)
				for (stream = 0; stream < 2; stream++) {
					double now = once(v, kind, f, h, n, stream);

					if (now > best[i][stream][kind])
						best[i][stream][kind] = now;
				}
	printf("%zu MiB of f32, GB/s read and written\n%-16s", mib, "");
	for (kind = 0; kind < KINDS; kind++)
		printf(" %12s", kinds[kind]);
	for (i = 0; (v = __crpc_tensor_convert[i]) != NULL; i++)
		for (stream = 0; stream < 2 && v->usable(); stream++) {
			printf("\n  %-6s %-7s", v->name, stream ? "around" : "through");
			for (kind = 0; kind < KINDS; kind++)
				printf(" %12.1f", best[i][stream][kind]);
		}
	printf("\n");
	free(f);
	free(h);
}

int
main(int argc, char **argv)
{
	int i;

	crpc_clock_init();
	for (i = 1; i < argc; i++)
		measure((size_t)crpc_max(strtoul(argv[i], NULL, 10), 1));
	if (argc == 1)
		measure(10);
	return 0;
}
