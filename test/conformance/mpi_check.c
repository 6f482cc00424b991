/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * An MPI program that checks what it receives: messages both ways at once from 0 bytes to 1 MiB,
 * a reduction, and one-sided operations with fences and with locks. A line for each; exit 1, and
 * the place, at the first wrong byte.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BYTES_MAX (1 << 20)
#define WORDS     4096

static int rank, ranks;

static void
check_at(bool good, int line, const char *text)
{
	if (good)
		return;
	fprintf(stderr, "rank %d, line %d: not %s\n", rank, line, text);
	MPI_Abort(MPI_COMM_WORLD, 1);
}

#define CHECK(x) check_at(x, __LINE__, #x)

static void
done(const char *what)
{
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("right: %s\n", what);
}

static uint8_t
byte_of(int from, int size, int at)
{
	return (uint8_t)(from * 31 + size * 7 + at * 13 + at / 251);
}

static void
check_messages(void)
{
	static const int sizes[] = {0, 1, 7, 64, 1000, 4096, 16385, 65536, BYTES_MAX};
	uint8_t *out = malloc(BYTES_MAX), *in = malloc(BYTES_MAX);
	int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, count;
	MPI_Request both[2];
	MPI_Status status[2];

	CHECK(out != NULL && in != NULL);
	for (int i = 0; i < (int)(sizeof(sizes) / sizeof(sizes[0])); i++) {
		int size = sizes[i];

		for (int k = 0; k < size; k++)
			out[k] = byte_of(rank, size, k);
		memset(in, 0, BYTES_MAX);
		MPI_Irecv(in, BYTES_MAX, MPI_BYTE, before, i, MPI_COMM_WORLD, &both[0]);
		MPI_Isend(out, size, MPI_BYTE, next, i, MPI_COMM_WORLD, &both[1]);
		MPI_Waitall(2, both, status);
		MPI_Get_count(&status[0], MPI_BYTE, &count);
		CHECK(count == size);
		for (int k = 0; k < size; k++)
			CHECK(in[k] == byte_of(before, size, k));
	}
	free(out);
	free(in);
	done("send and receive");
}

static void
check_allreduce(void)
{
	static int64_t mine[WORDS], sum[WORDS];

	for (int i = 0; i < WORDS; i++)
		mine[i] = (int64_t)(rank + 1) * i;
	MPI_Allreduce(mine, sum, WORDS, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < WORDS; i++)
		CHECK(sum[i] == (int64_t)ranks * (ranks + 1) / 2 * i);
	done("allreduce");
}

static void
check_fence(MPI_Win win, const int64_t *window, int peer)
{
	static int64_t out[WORDS], in[WORDS];
	int before = (rank + ranks - 1) % ranks;

	for (int i = 0; i < WORDS; i++)
		out[i] = rank * 100000 + i;
	MPI_Win_fence(0, win);
	MPI_Put(out, WORDS, MPI_INT64_T, peer, 0, WORDS, MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < WORDS; i++)
		CHECK(window[i] == before * 100000 + i);
	MPI_Get(in, WORDS, MPI_INT64_T, peer, 0, WORDS, MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < WORDS; i++)
		CHECK(in[i] == rank * 100000 + i);
	done("put and get");
}

static void
check_atomics(MPI_Win win, int64_t *window)
{
	int64_t one = 1, old = 0, compare = 1000LL * ranks, swap = -5;

	window[0] = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < 500; i++) {
		MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, win);
		MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, 0, MPI_SUM, win);
		MPI_Win_flush(0, win);
		CHECK(old >= 0 && old < compare);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == ranks - 1) {
		MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
		MPI_Compare_and_swap(&swap, &compare, &old, MPI_INT64_T, 0, 0, win);
		MPI_Win_unlock(0, win);
		CHECK(old == compare);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
	MPI_Get(&old, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win);
	MPI_Win_unlock(0, win);
	CHECK(old == swap);
	done("accumulate, fetch-and-add and compare-and-swap");
}

int
main(int argc, char **argv)
{
	int64_t *window;
	MPI_Win win;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	CHECK(ranks >= 2);
	check_messages();
	check_allreduce();
	MPI_Win_allocate(WORDS * sizeof(*window), sizeof(*window), MPI_INFO_NULL, MPI_COMM_WORLD,
			&window, &win);
	check_fence(win, window, (rank + 1) % ranks);
	check_atomics(win, window);
	MPI_Win_free(&win);
	MPI_Finalize();
	return 0;
}
