/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ENGINE_RIG_H
#define ENGINE_RIG_H

/*
 * A bench for the engine: contexts, queues in plain memory, WQEs composed by hand, time by hand.
 *
 *     rig_host_open x2 -> rig_qp_open x2 -> rig_connect -> rig_recv, rig_wqe*, rig_post -> rig_run
 *     -> rig_poll
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <infiniband/mlx5dv.h>

#include "nic.h"

#define RIG_SYND(cqe) (((const struct mlx5_err_cqe *)(cqe))->syndrome)

struct rig_host {
	struct sm_nic *nic;
	uint8_t *uar;
	struct sm_uar *uar_obj;
	struct sm_pd *pd;
	struct sm_mr *mr;
	uint8_t *mem; /* One region with all rights. */
	uint32_t bytes;
	uint32_t key;
	uint32_t uar_id;
	uint32_t addr; /* IPv4, over UDP. */
	uint32_t comp_events;
	uint32_t async[32]; /* By type. */
};

struct rig_cq {
	struct sm_cq *cq;
	uint8_t *buf;
	uint32_t *dbrec;
	uint32_t ncqe, size, ci, cqn;
	struct mlx5_cqe64 last; /* What rig_poll() returned. */
};

struct rig_srq {
	struct sm_srq *srq;
	uint8_t *buf;
	uint32_t *dbrec;
	uint32_t nwqe, shift, posted;
};

struct rig_qp_conf {
	enum sm_qp_type type; /* 0: RC. */
	uint64_t dc_key;      /* DCT; it has an SRQ and no queues. */
	uint32_t bad_streams; /* DCI. */
	uint32_t sq_nbb, rq_nwqe, rq_shift;
	uint32_t ncqe, cqe_size;
	struct rig_srq *srq;
	struct sm_pd *pd;
	uint32_t uar_id;
	bool scatter_cqe;
};

struct rig_qp {
	struct rig_host *host;
	struct sm_qp *qp;
	uint32_t qpn;
	uint8_t *sq, *rq;
	uint32_t *dbrec;
	enum sm_qp_type type;
	uint32_t sq_nbb, rq_nwqe, rq_shift;
	uint16_t sq_pi, rq_pi;
	uint16_t last; /* Where the newest WQE starts. */
	uint32_t bf; /* Which half of the BlueFlame pair is next. */
	struct rig_cq scq, rcq;
};

/* A target, and the receives that were posted to it, at each index of its SRQ in turn. */
struct rig_dct {
	struct rig_srq srq;
	struct rig_qp qp;
	uint32_t posted;
};

/* A WQE as it is composed, before it goes into the ring. */
struct rig_wqe {
	uint8_t b[1024];
	uint32_t len;
};

extern uint64_t rig_now;
extern uint8_t rig_retry, rig_rnr_retry;
extern uint8_t rig_timeout;    /* As in verbs; about a millisecond. */
extern const char *rig_faults; /* Of hosts that are opened from now on. */
extern bool rig_udp;           /* Likewise: each has an address in 127/8. So if RIG_UDP is set. */
extern uint32_t rig_addr;      /* Over UDP: of the next one; 0: one of its own. */
extern const char *rig_pcap;   /* Likewise. */
extern uint32_t rig_dct_conns; /* Likewise: sm_nic_attr.dct_conns. */
/* Likewise: see sm_nic_attr; the least there is if RIG_DIRECT is set. */
extern uint32_t rig_direct;
extern uint8_t rig_mtu;        /* enum ibv_mtu: of paths from now on. */
extern uint32_t rig_psn;       /* Where packets of a connection begin. */
/* Of every host, but over UDP. */
extern const uint8_t rig_gid[16];

/* A net of this process alone; the first call sweeps. */
const char *rig_net(void);
/* Remove the nets of test processes that ended before they could. */
void rig_nets_sweep(void);
void rig_host_open(struct rig_host *h, const char *net, uint32_t bytes);
void rig_host_close(struct rig_host *h);
/* A region that is its own address, with these rights, and its key. */
struct sm_mr *rig_mr_open(struct rig_host *h, struct sm_pd *pd, const void *mem, uint64_t len,
	uint32_t access, uint32_t *key);
void rig_srq_open(struct rig_host *h, struct rig_srq *s, uint32_t nwqe, uint32_t shift);
void rig_srq_close(struct rig_host *h, struct rig_srq *s);
/* Zeros in conf are replaced by defaults; conf NULL: all of them. */
void rig_qp_open(struct rig_host *h, struct rig_qp *q, const struct rig_qp_conf *conf);
void rig_qp_close(struct rig_qp *q);
/* Two hosts of a net of their own, each with a queue pair, not connected yet. */
void rig_pair_open(struct rig_qp *qa, struct rig_host *a, struct rig_qp *qb, struct rig_host *b,
	uint32_t bytes, const struct rig_qp_conf *conf);
/* Queue pairs and hosts. */
void rig_pair_close(struct rig_qp *qa, struct rig_qp *qb);
void rig_init_mod(struct ib_uverbs_modify_qp *m);
void rig_rtr_mod(struct ib_uverbs_modify_qp *m, uint32_t dest_qpn);
void rig_rts_mod(struct ib_uverbs_modify_qp *m);
/* What takes a queue pair to INIT, RTR or RTS: all attributes that its type needs. */
void rig_mod(const struct rig_qp *q, enum ibv_qp_state to, uint32_t dest_qpn, uint32_t qkey,
	struct ib_uverbs_modify_qp *m);
/* Over UDP: the address of a slot in which no host of ours is. */
void rig_addr_set(uint32_t slot, uint32_t addr);
/* To RTS, both ways. */
void rig_connect(struct rig_qp *a, struct rig_qp *b);
/* Two more queue pairs of two hosts (or of one), connected; and their end. */
void rig_link_open(struct rig_host *a, struct rig_qp *qa, struct rig_host *b, struct rig_qp *qb,
	const struct rig_qp_conf *conf);
void rig_link_close(struct rig_qp *qa, struct rig_qp *qb);
/* Forget all CQEs, reset both, connect again. */
void rig_reconnect(struct rig_qp *a, struct rig_qp *b);
void rig_to_rts(struct rig_qp *q, uint32_t dest_qpn);
/* UD, DCI and DCT, which have no peer: ready to send, or a DCT to receive. */
void rig_ready(struct rig_qp *q, uint32_t qkey);
/* One of such a type with defaults, ready. */
void rig_ready_open(struct rig_host *h, struct rig_qp *q, enum sm_qp_type type, uint32_t qkey);
void rig_dct_open(struct rig_host *h, struct rig_dct *d, uint64_t key);
void rig_dct_close(struct rig_dct *d);
void rig_dct_recv(struct rig_dct *d, void *addr, uint32_t len);
void rig_set_state(struct rig_qp *q, enum ibv_qp_state state);
enum ibv_qp_state rig_state(struct rig_qp *q);

void rig_wqe(struct rig_wqe *w, uint8_t op, uint8_t fm_ce_se, uint32_t imm);
/* An address vector: key and number, 48 bytes long with a GRH to dgid if that is not NULL. Over UDP
 * dgid is that of the host which has the number. */
void rig_wqe_av(struct rig_wqe *w, uint64_t key, uint32_t qpn, uint16_t dlid, const uint8_t *dgid);
void rig_wqe_raddr(struct rig_wqe *w, const void *raddr, uint32_t rkey);
void rig_wqe_atomic(struct rig_wqe *w, uint64_t swap_add, uint64_t compare);
void rig_wqe_data(struct rig_wqe *w, const void *addr, uint32_t len, uint32_t lkey);
void rig_wqe_inline(struct rig_wqe *w, const void *data, uint32_t len);
/* Without flags: an RDMA operation with one segment of the sender's memory. */
void rig_wqe_rdma(struct rig_wqe *w, uint8_t op, const void *raddr, uint32_t rkey, const void *data,
	uint32_t len, uint32_t lkey);
/* Put it into the ring; rig_ring() rings the doorbell. Returns the WQEBB index. */
uint16_t rig_queue(struct rig_qp *q, struct rig_wqe *w);
void rig_ring(struct rig_qp *q);
uint16_t rig_post(struct rig_qp *q, struct rig_wqe *w);
/* Post a signalled operation with one segment of the host's memory. Without data: no segment. */
uint16_t rig_send(struct rig_qp *q, uint8_t op, uint32_t imm, const void *data, uint32_t len);
uint16_t rig_rdma(struct rig_qp *q, uint8_t op, uint32_t imm, const void *raddr, uint32_t rkey,
	const void *data, uint32_t len);
/* A SEND_IMM to whom an address vector names: of UD and DCI. */
uint16_t rig_send_to(struct rig_qp *q, uint32_t imm, uint64_t key, uint32_t qpn,
	const uint8_t *dgid, const void *data, uint32_t len);
uint16_t rig_fetch_add(
	struct rig_qp *q, const void *raddr, uint32_t rkey, uint64_t add, void *old, uint32_t len);
/* Post a receive of one segment (len 0: no segment). */
void rig_recv(struct rig_qp *q, void *addr, uint32_t len, uint32_t lkey);
void rig_srq_recv(struct rig_srq *s, uint32_t index, uint32_t next, void *addr, uint32_t len,
	uint32_t lkey);

/* Into a buffer of another size; what a driver then does with CQEs that are not consumed. */
void rig_cq_resize(struct rig_host *h, struct rig_cq *cq, uint32_t ncqe);
/* The next CQE, copied, or NULL. */
struct mlx5_cqe64 *rig_poll(struct rig_cq *cq);
/* Let both sides work until both have nothing to do in a row of turns. */
void rig_run(struct rig_host *a, struct rig_host *b);
/* The next CQE after letting both work; fails the test if none comes. */
struct mlx5_cqe64 *rig_expect(struct rig_host *a, struct rig_host *b, struct rig_cq *cq);

#endif
