/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef TENSOR_H
#define TENSOR_H

/**
 * @file
 * Layer tensor: an array of f32 goes from the first process to the second, in several ways.
 *
 * A pass, with the counter that both cores read:
 *
 *     side 0                                       side 1
 *     writes the array                             waits
 *     begin
 *       ... makes a message of it ...
 *     serialized
 *       ... hands it over ...
 *     sent                                         received    all of it is in this process
 *                                                    ... makes an array of f32 of it ...
 *                                                  done
 *                                                    ... reads every element ...
 *                                                  read
 *                                                  compares every element
 *     takes the answer      <-- these times --
 */

#include <string.h>

#include "rpb.h"

/** Bytes of an array. */
#define TENSOR_SIZE_MAX (256u << 20)
/** Bytes of an address at most. */
#define TENSOR_ADDR_MAX 128

/** Stages of a pass, and series of a lane. READ comes after those before, and is not in TOTAL. */
enum tensor_stage {
	TENSOR_TOTAL,
	TENSOR_SERIALIZE,
	TENSOR_SEND,
	TENSOR_RECEIVE,
	TENSOR_DESERIALIZE,
	TENSOR_READ,    /**< Or the computation, if there is one. */
	TENSOR_REQUEST, /**< All of it. */
	TENSOR_STAGES,
};

/** What a message is. */
enum tensor_form {
	TENSOR_IN_PLACE, /**< The array where it was written, */
	TENSOR_COPIED,   /**< a copy of it in shared memory, */
	TENSOR_BF16,     /**< half the bytes there. */
	TENSOR_RAW,      /**< Its bytes as they are, */
	TENSOR_BIN,      /**< one msgpack binary, */
	TENSOR_ELEMS,    /**< a msgpack array. */
};

/** What side 1 reports of a pass; ticks of the counter. */
struct tensor_answer {
	uint64_t received;
	uint64_t done;
	uint64_t read;
	uint64_t wrong; /**< Elements that are not what the way may make of what was written. */
	struct tensor_loss {
		double changed; /**< Share of elements that are not what was written. */
		double max;     /**< Relative errors: the greatest one, */
		double rms;     /**< and the root of the mean of their squares. */
		double result;  /**< The error of what was computed. */
	} loss;
};

/** A pass as side 0 knows it in the end. */
struct tensor_pass {
	uint64_t begin;
	uint64_t serialized;
	uint64_t sent;
	struct tensor_answer answer;
};

/** Side 1: who uses the arrays. */
struct tensor_user {
	uint32_t elems;
	uint32_t seq;   /**< Of the array that comes next. */
	double error;   /**< Relative, that the way may make; 0: none. */
	struct tensor_compute *compute; /**< NULL: it reads each element. */
	struct tensor_answer answer;
};

/** The array is there: note done, read it, note read, compare it. */
void tensor_use(struct tensor_user *u, const float *x);

/**
 * Element i of array number seq: of either sign, within eight powers of two, with all 24 bits of
 * mantissa, which few numbers of bf16 have.
 */
static inline float
tensor_element(uint32_t i, uint32_t seq)
{
	uint32_t h = (i + seq * 40503) * 2654435761u, bits;
	float x;

	/* Sums of products must not see that a product alone repeats itself. */
	h = (h ^ h >> 15) * 2246822519u;
	h ^= h >> 13;
	bits = (h & 0x807fffff) | (120 + (h >> 23 & 7)) << 23;
	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* ---- tensor_compute.c: what side 1 computes of an array, if it is asked to ---- */

/** In the order of --compute. */
enum { TENSOR_NOTHING, TENSOR_SEPARATE, TENSOR_FUSED };

struct tensor_compute;

/** Before processes part: 0, or an exit code after one line. */
int tensor_compute_check(const struct app_list *sizes);
/** Weights for arrays of so many elements; NULL: no memory. free() frees it. */
struct tensor_compute *tensor_compute_new(uint32_t elems, bool fused);
/** A matrix product, an addition and an activation; the last two in one pass over it if fused. */
void tensor_compute(struct tensor_compute *c, const float *x);
/** The error of the last result, as part of it, compared with that of the array as written. */
double tensor_compute_error(const struct tensor_compute *c, uint32_t seq);

struct tensor_lane;

/** A way to pass an array. Functions that fail have said why: app_lane_fail(). */
struct tensor_way {
	struct app_way base;
	enum tensor_form form;
	bool ipc;            /**< ZeroMQ: not tcp. */
	uint32_t elem_bytes; /**< As base.mib, of each element. */
	/** Side 0: pass l->array and wait for the answer: 0 or -errno. */
	int (*pass)(struct tensor_lane *l, struct tensor_pass *t);
	/**
	 * Side 1: wait a moment for an array: set received, hand it to tensor_use(), send the
	 * answer. 0 or -errno.
	 */
	int (*serve)(struct tensor_lane *l);
};

extern const struct tensor_way tensor_f32, tensor_f32_copied, tensor_bf16;

/** What people use instead. */
#define TENSOR_ZMQ 6
extern const struct tensor_way tensor_zmq[TENSOR_ZMQ];
#define TENSOR_ZMQ_WAYS(WAY)                                                                       \
	{                                                                                          \
		WAY("raw_zmq_ipc", TENSOR_RAW, true), WAY("raw_zmq_tcp", TENSOR_RAW, false),       \
			WAY("msgpack_bin_zmq_ipc", TENSOR_BIN, true),                              \
			WAY("msgpack_bin_zmq_tcp", TENSOR_BIN, false),                             \
			WAY("msgpack_elements_zmq_ipc", TENSOR_ELEMS, true),                       \
			WAY("msgpack_elements_zmq_tcp", TENSOR_ELEMS, false),                      \
	}

/** The lane of a way. */
struct tensor_lane {
	struct app_lane base;
	uint32_t elems;
	uint64_t slice_ns;
	float *array; /**< Side 0: where it is written before a pass; set by open or meet. */
	struct tensor_report {
		struct app_report base;
		double us[TENSOR_STAGES]; /**< Medians of the slice's passes. */
		struct tensor_loss loss;  /**< Of the last pass. */
	} report[APP_SIDES];
	struct tensor_user user; /**< Side 1. */
	char name[40];           /**< Unique on this host, for addresses. */
};

static inline const struct tensor_way *
tensor_way(const struct tensor_lane *l)
{
	return (const struct tensor_way *)l->base.way;
}

/** Keep why a step failed. Returns rc. */
#define tensor_fail(l, rc, ...) app_lane_fail(&(l)->base, rc, __VA_ARGS__)

#endif
