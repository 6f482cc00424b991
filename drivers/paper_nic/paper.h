/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PAPER_H
#define PAPER_H

/*
 * The objects of the NIC on paper.
 *
 * Requests of a send queue, by positions that run free:
 *
 *     freed             acked              done              posted
 *       | completion not  | carried out, not | not carried     |
 *       | polled          | acknowledged     | out             |
 *       +-----------------+------------------+-----------------+
 *        moved by a poll   by a step          by a step         by post
 */

#include "crpc_paper_nic.h"
#include "crpc_rdma_driver.h"

#define PAPER_MTU_MAX    4096u
#define PAPER_QUEUES_MAX (1u << 22) /* of a fabric */
#define PAPER_MRS_MAX    65536u /* of a device */
/* The bit in which an rkey differs from the region's lkey. */
#define PAPER_RKEY 0x80000000u

/* A queue as its address names it: the key differs from those that had the number before. */
struct paper_target {
	uint32_t index;
	uint32_t key;
};

struct paper_ah {
	struct crpc_rdma_ah base;
	struct paper_target to;
};

/* A datagram in the network, and then the buffer in which the user gets it. */
struct crpc_paper_packet {
	TAILQ_ENTRY(crpc_paper_packet) link; /* In flight, or among those that were given. */
	struct crpc_paper_queue *queue; /* Whose buffer it is. */
	struct paper_target to;
	uint32_t len, imm;
	crpc_aligned(64) uint8_t data[];
};

struct paper_slot {
	struct crpc_rdma_wr wr; /* Of an inline one, the only element is in the queue's memory. */
	struct paper_target to;
	uint64_t due_ns;
	uint64_t lands, acked; /* Virtual time, ps: when it is carried out, and acknowledged. */
	uint32_t len;
	uint32_t moved; /* Bytes carried out so far, of a WRITE in pieces. */
	bool completes; /* A completion is written, for the user or to free the queue's room. */
};

struct crpc_paper_queue {
	struct crpc_rdma_qp qp;
	struct crpc_paper_dev *dev;
	struct crpc_paper *net;
	uint8_t kind; /* enum crpc_rdma_transport */
	bool connected, broken, drained;
	struct paper_target self, peer;
	uint32_t sq_depth, rq_depth, sq_mask, inline_max, signal_every;
	uint32_t posted, done, acked, freed;
	uint32_t shown;       /* As freed, by completions that the user saw. */
	uint32_t unsignalled; /* Requests since the last one that completes. */
	uint32_t receives;    /* Posted ones. */
	uint32_t at;          /* In net->active, if it is active. */
	uint32_t dci;         /* Virtual time: its initiator, while it has requests. */
	uint64_t free, recv;  /* Its servers, for what it sends, and receives. */
	uint64_t gone;        /* Since when its peer is gone; 0: it is not. */
	uint8_t *inlined;     /* inline_max bytes per slot, behind the slots */
	struct paper_slot sq[];
};

struct paper_cqe {
	struct crpc_rdma_cqe cqe;
	struct crpc_paper_queue *queue;
	struct crpc_paper_packet *packet;
	bool send, hidden; /* hidden: of a send whose completion the user did not ask for. */
	uint32_t retired;  /* Of a send: the queue's requests that are over with it. */
};

/* A region; its len is 0 while its number is free. */
struct paper_mr {
	uint64_t addr, len;
	uint32_t key;
};

/* An initiator of DC. */
struct paper_dci {
	uint64_t free; /* Its server. */
	struct paper_target to;
};

/* A queue whose state the device has. */
struct paper_cached {
	uint32_t key;
	TAILQ_ENTRY(paper_cached) used;
	LIST_ENTRY(paper_cached) chain; /* Of its bucket. */
};

/* A card in virtual time, of all devices that have its name: when each server is free, ps. */
struct paper_card {
	LIST_ENTRY(paper_card) link;
	char name[64];
	uint32_t devs, serial; /* Open; of the next one. */
	uint64_t wqe, tx, rx, recv;
	struct paper_cached *cached;
	TAILQ_HEAD(paper_used, paper_cached) used; /* The one that was used last first. */
	LIST_HEAD(paper_chain, paper_cached) *bucket;
	uint32_t bucket_mask, ncached;
};

struct crpc_paper_dev {
	struct crpc_rdma base;
	struct crpc_paper *net;
	char name[64];
	struct crpc_paper_conf conf;
	bool dead;
	uint32_t post_limit;
	uint32_t cq_reserved;
	uint32_t head, tail, cq_mask;
	uint32_t last_mr_key;
	struct paper_mr *mrs; /* Those that were ever used, nmrs. */
	struct paper_cqe *cq;
	struct crpc_paper_packets given; /* Datagrams of the last poll. */
	struct crpc_paper_counts counts;
	uint32_t nmrs, free_mr; /* No number below free_mr is free. */
	/* Virtual time: its card and what it has there itself. */
	struct paper_card *card;
	struct paper_dci dci[CRPC_RDMA_DCIS_MAX];
	uint32_t dci_key;
	uint64_t recv_cq;
	void (*on_cqe)(void *arg, uint64_t now_ns, bool received);
	void *on_cqe_arg;
};

extern const struct crpc_rdma_fp __crpc_paper_fp;

struct crpc_paper_queue *__crpc_paper_find(
	const struct crpc_paper *net, const struct paper_target *to);
/* What a step does to the oldest request of a queue, and to that which is acknowledged next. */
bool __crpc_paper_run(struct crpc_paper_queue *q);
void __crpc_paper_ack(struct crpc_paper_queue *q);
/* One datagram arrives, or what the faults make of it. */
void __crpc_paper_flight(struct crpc_paper *net);
/* Whether requests of a queue to that peer fail. */
bool __crpc_paper_lost(const struct crpc_paper_queue *q, const struct crpc_paper_queue *peer);

/* In virtual time: n requests were posted with one doorbell. */
void __crpc_paper_time_post(struct crpc_paper_queue *q, uint32_t n, bool blueflame);
int __crpc_paper_time_open(struct crpc_paper_dev *dev);
void __crpc_paper_time_close(struct crpc_paper_dev *dev);

/* Take a queue with requests that are not acknowledged out of net->active. */
void __crpc_paper_deactivate(struct crpc_paper_queue *q);
/* Forget completions of a queue that were not polled, and datagrams that were given out of it. */
void __crpc_paper_purge(struct crpc_paper_queue *q);

#endif
