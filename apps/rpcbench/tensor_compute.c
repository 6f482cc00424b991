/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a request with an array computes of it, by OpenBLAS on one core: y = max(x * w + b, 0), with
 * rows of WIDTH elements in x. The library is opened when it is needed, so builds do without it.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

#include "app_fail.h"
#include "tensor.h"

#define LIBRARY "libopenblas.so.0"
#define WIDTH   1000
/* Elements of a result that are compared. */
#define SAMPLES 64
/* Of CBLAS. */
#define ROW_MAJOR 101
#define NO_TRANS  111

static void (*sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha,
	const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);

struct tensor_compute {
	uint32_t rows;
	bool fused;
	float w[WIDTH * WIDTH], b[WIDTH];
	float y[]; /* rows */
};

int
tensor_compute_check(const struct app_list *sizes)
{
	void *library;

	for (uint32_t i = 0; i < sizes->n; i++)
		if (sizes->v[i] % (WIDTH * sizeof(float)) != 0)
			return app_fail("--size %lu: --compute takes rows of %d elements; give a "
					"multiple of %zu",
				(unsigned long)sizes->v[i], WIDTH, WIDTH * sizeof(float));
	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	*(void **)&sgemm = library == NULL ? NULL : dlsym(library, "cblas_sgemm");
	return sgemm != NULL
		? 0
		: app_fail("--compute needs " LIBRARY ", which is not there; install libopenblas0");
}

struct tensor_compute *
tensor_compute_new(uint32_t elems, bool fused)
{
	struct tensor_compute *c = calloc(1, sizeof(*c) + elems * sizeof(float));

	if (c == NULL)
		return NULL;
	c->rows = elems / WIDTH;
	c->fused = fused;
	for (uint32_t i = 0; i < WIDTH * (WIDTH + 1); i++)
		*(i < WIDTH ? &c->b[i] : &c->w[i - WIDTH]) = tensor_element(i, 1) / WIDTH;
	return c;
}

/* A pass over the product. */
static void
add_activate(struct tensor_compute *c, bool add, bool activate)
{
	for (float *y = c->y; y < c->y + c->rows * WIDTH; y += WIDTH)
		for (uint32_t i = 0; i < WIDTH; i++) {
			y[i] += add ? c->b[i] : 0;
			y[i] = activate && y[i] < 0 ? 0 : y[i];
		}
}

void
tensor_compute(struct tensor_compute *c, const float *x)
{
	sgemm(ROW_MAJOR, NO_TRANS, NO_TRANS, (int)c->rows, WIDTH, WIDTH, 1, x, WIDTH, c->w, WIDTH,
		0, c->y, WIDTH);
	add_activate(c, true, c->fused);
	if (!c->fused)
		add_activate(c, false, true);
}

double
tensor_compute_error(const struct tensor_compute *c, uint32_t seq)
{
	double all = 0, errors = 0, y;
	uint32_t row, column;

	for (uint32_t i = 0; i < SAMPLES; i++) {
		row = (uint32_t)((uint64_t)i * (c->rows - 1) / (SAMPLES - 1));
		column = i * (WIDTH / SAMPLES);
		y = (double)c->b[column];
		for (uint32_t k = 0; k < WIDTH; k++)
			y += (double)tensor_element(row * WIDTH + k, seq) *
				(double)c->w[k * WIDTH + column];
		y = fmax(y, 0);
		all += y * y;
		y -= (double)c->y[row * WIDTH + column];
		errors += y * y;
	}
	return sqrt(errors / all);
}
