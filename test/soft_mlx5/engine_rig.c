/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "crpc_atomic.h"
#include "engine_rig.h"

uint64_t rig_now = 1;
uint8_t rig_retry = 2, rig_rnr_retry = 3;
bool rig_udp;
uint32_t rig_addr;
uint8_t rig_timeout = 8;
uint32_t rig_dct_conns;
const char *rig_pcap;
uint32_t rig_direct;
uint8_t rig_mtu = IBV_MTU_4096;
uint32_t rig_psn = 0xfffff0; /* Goes round 24 bits soon. */
const char *rig_faults;
const uint8_t rig_gid[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 1, 0};

static void *
page_alloc(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	assert_non_null(p);
	memset(p, 0, (bytes + 4095) & ~(size_t)4095);
	return p;
}

/* Remove a net's folder; files only are in it. */
static void
net_remove(int base, const char *name)
{
	int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			unlinkat(fd, e->d_name, 0);
	if (d != NULL)
		closedir(d);
	unlinkat(base, name, AT_REMOVEDIR);
}

void
rig_nets_sweep(void)
{
	const char *path = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
	DIR *base = opendir(path);
	struct dirent *e;

	while (base != NULL && (e = readdir(base)) != NULL) {
		unsigned int uid;
		int pid, n;

		if (sscanf(e->d_name, "soft_mlx5.%u.test-engine-%d-%d", &uid, &pid, &n) == 3 &&
			uid == geteuid() && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
			net_remove(dirfd(base), e->d_name);
	}
	if (base != NULL)
		closedir(base);
}

const char *
rig_net(void)
{
	static char net[64];
	static int n;

	if (n == 0)
		rig_nets_sweep();
	snprintf(net, sizeof(net), "test-engine-%d-%d", (int)getpid(), n++);
	return net;
}

/* Which address has the queue pairs of a slot. */
static uint32_t addr_of[SM_SLOTS];

void
rig_addr_set(uint32_t slot, uint32_t addr)
{
	addr_of[slot] = addr;
}

static void
rig_gid_of(uint32_t addr, uint8_t gid[16])
{
	uint32_t be = htobe32(addr);

	memcpy(gid, rig_gid, 16);
	if (addr == 0)
		return;
	memset(gid, 0, 10);
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, &be, sizeof(be));
}

/* The callbacks get the user pointer of the object; the rig passes its host everywhere. */
static void
on_comp(void *user)
{
	((struct rig_host *)user)->comp_events++;
}

static void
on_async(void *user, enum ibv_event_type type)
{
	((struct rig_host *)user)->async[type]++;
}

struct sm_mr *
rig_mr_open(struct rig_host *h, struct sm_pd *pd, const void *mem, uint64_t len, uint32_t access,
	uint32_t *key)
{
	const struct sm_region region = {(uintptr_t)mem, len, (uintptr_t)mem, access};
	struct sm_mr *mr = NULL;

	assert_int_equal(sm_mr_create(h->nic, pd, &region, &mr, key), 0);
	return mr;
}

void
rig_host_open(struct rig_host *h, const char *net, uint32_t bytes)
{
	struct sm_nic_attr attr = {.net = net,
		.faults = rig_faults,
		.pcap = rig_pcap,
		.dct_conns = rig_dct_conns,
		.comp_event = on_comp,
		.async_event = on_async};
	uint32_t pdn;

	memset(h, 0, sizeof(*h));
	if (getenv("RIG_UDP") != NULL)
		rig_udp = true;
	if (getenv("RIG_DIRECT") != NULL)
		rig_direct = SM_DIRECT_LEAST;
	attr.direct = rig_direct;
	if (rig_udp) {
		static uint32_t n;

		h->addr = 0x7f000000 | ((uint32_t)getpid() & 0xffff) << 8 | (n++ % 250 + 1);
		if (rig_addr != 0)
			h->addr = rig_addr;
		attr.udp_addr = h->addr;
	}
	rig_gid_of(h->addr, attr.gid);
	assert_int_equal(sm_nic_create(&attr, &h->nic), 0);
	h->uar = page_alloc(4096);
	h->uar_id = 7;
	assert_int_equal(sm_uar_add(h->nic, h->uar_id, h->uar, &h->uar_obj), 0);
	assert_int_equal(sm_pd_create(h->nic, &h->pd, &pdn), 0);
	h->mem = page_alloc(bytes);
	h->bytes = bytes;
	h->mr = rig_mr_open(h, h->pd, h->mem, bytes, 15, &h->key);
}

void
rig_host_close(struct rig_host *h)
{
	assert_int_equal(sm_destroy(h->nic, h->mr), 0);
	assert_int_equal(sm_destroy(h->nic, h->pd), 0);
	assert_int_equal(sm_destroy(h->nic, h->uar_obj), 0);
	sm_nic_free(h->nic);
	free(h->uar);
	free(h->mem);
}

static uint8_t *
cq_buf(uint32_t ncqe, uint32_t size)
{
	uint8_t *buf = page_alloc((size_t)ncqe * size);

	for (uint32_t i = 0; i < ncqe; i++)
		buf[(size_t)i * size + size - 1] = 0xf1; /* Invalid, owned by hardware. */
	return buf;
}

static void
cq_open(struct rig_host *h, struct rig_cq *c, uint32_t ncqe, uint32_t size)
{
	struct sm_cq_attr attr = {.ncqe = ncqe, .cqe_size = size, .user = h};

	memset(c, 0, sizeof(*c));
	c->buf = cq_buf(ncqe, size);
	c->dbrec = page_alloc(64);
	c->ncqe = ncqe;
	c->size = size;
	attr.buf = c->buf;
	attr.dbrec = c->dbrec;
	assert_int_equal(sm_cq_create(h->nic, &attr, &c->cq, &c->cqn), 0);
}

void
rig_srq_open(struct rig_host *h, struct rig_srq *s, uint32_t nwqe, uint32_t shift)
{
	struct sm_srq_attr attr = {.pd = h->pd, .nwqe = nwqe, .wqe_shift = shift, .user = h};
	uint32_t srqn;

	memset(s, 0, sizeof(*s));
	s->buf = page_alloc((size_t)nwqe << shift);
	s->dbrec = page_alloc(64);
	s->nwqe = nwqe;
	s->shift = shift;
	attr.buf = s->buf;
	attr.dbrec = s->dbrec;
	assert_int_equal(sm_srq_create(h->nic, &attr, &s->srq, &srqn), 0);
	assert_int_not_equal(srqn, 0);
}

void
rig_srq_close(struct rig_host *h, struct rig_srq *s)
{
	assert_int_equal(sm_destroy(h->nic, s->srq), 0);
	free(s->buf);
	free(s->dbrec);
}

void
rig_qp_open(struct rig_host *h, struct rig_qp *q, const struct rig_qp_conf *conf)
{
	struct rig_qp_conf c = conf != NULL ? *conf : (struct rig_qp_conf){0};
	struct sm_qp_attr attr = {.uidx = 0x1234, .user = h, .dc_key = c.dc_key,
		.bad_streams = c.bad_streams};

	memset(q, 0, sizeof(*q));
	q->host = h;
	q->type = attr.type = c.type != 0 ? c.type : SM_RC;
	q->sq_nbb = c.type == SM_DCT ? 0 : c.sq_nbb != 0 ? c.sq_nbb : 64;
	q->rq_nwqe = c.type == SM_DCT || c.type == SM_DCI ? 0 : c.rq_nwqe != 0 ? c.rq_nwqe : 32;
	q->rq_shift = c.rq_shift != 0 ? c.rq_shift : 5;
	cq_open(h, &q->scq, c.ncqe != 0 ? c.ncqe : 128, c.cqe_size != 0 ? c.cqe_size : 64);
	cq_open(h, &q->rcq, c.ncqe != 0 ? c.ncqe : 128, c.cqe_size != 0 ? c.cqe_size : 64);
	q->sq = page_alloc((size_t)q->sq_nbb * 64);
	q->rq = page_alloc((size_t)q->rq_nwqe << q->rq_shift);
	q->dbrec = page_alloc(64);
	attr.pd = c.pd != NULL ? c.pd : h->pd;
	attr.send_cq = q->scq.cq;
	attr.recv_cq = q->rcq.cq;
	attr.srq = c.srq != NULL ? c.srq->srq : NULL;
	attr.rq_buf = q->rq;
	attr.sq_buf = q->sq;
	attr.dbrec = q->dbrec;
	attr.sq_nwqebb = q->sq_nbb;
	attr.rq_nwqe = c.srq != NULL ? 0 : q->rq_nwqe;
	attr.rq_wqe_shift = q->rq_shift;
	attr.uar_page = c.uar_id != 0 ? c.uar_id : h->uar_id;
	attr.scatter_cqe = c.scatter_cqe;
	assert_int_equal(sm_qp_create(h->nic, &attr, &q->qp, &q->qpn), 0);
	addr_of[q->qpn >> 16] = h->addr;
}

void
rig_qp_close(struct rig_qp *q)
{
	assert_int_equal(sm_destroy(q->host->nic, q->qp), 0);
	assert_int_equal(sm_destroy(q->host->nic, q->scq.cq), 0);
	assert_int_equal(sm_destroy(q->host->nic, q->rcq.cq), 0);
	free(q->scq.buf);
	free(q->scq.dbrec);
	free(q->rcq.buf);
	free(q->rcq.dbrec);
	free(q->sq);
	free(q->rq);
	free(q->dbrec);
}

void
rig_pair_open(struct rig_qp *qa, struct rig_host *a, struct rig_qp *qb, struct rig_host *b,
	uint32_t bytes, const struct rig_qp_conf *conf)
{
	const char *net = rig_net();

	rig_host_open(a, net, bytes);
	rig_host_open(b, net, bytes);
	rig_qp_open(a, qa, conf);
	rig_qp_open(b, qb, conf);
}

void
rig_pair_close(struct rig_qp *qa, struct rig_qp *qb)
{
	struct rig_host *a = qa->host, *b = qb->host;

	rig_link_close(qa, qb);
	rig_host_close(a);
	rig_host_close(b);
}

void
rig_reconnect(struct rig_qp *a, struct rig_qp *b)
{
	while (rig_poll(&a->scq) != NULL || rig_poll(&b->scq) != NULL ||
		rig_poll(&a->rcq) != NULL || rig_poll(&b->rcq) != NULL)
		;
	rig_set_state(a, IBV_QPS_RESET);
	rig_set_state(b, IBV_QPS_RESET);
	rig_connect(a, b);
}

enum ibv_qp_state
rig_state(struct rig_qp *q)
{
	struct ib_uverbs_modify_qp m;

	sm_qp_query(q->host->nic, q->qp, &m);
	return m.qp_state;
}

void
rig_init_mod(struct ib_uverbs_modify_qp *m)
{
	*m = (struct ib_uverbs_modify_qp){
		.attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS,
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = 14,
	};
}

void
rig_rtr_mod(struct ib_uverbs_modify_qp *m, uint32_t dest_qpn)
{
	*m = (struct ib_uverbs_modify_qp){
		.attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		.qp_state = IBV_QPS_RTR,
		.dest.dlid = SM_LID,
		.port_num = 1,
		.path_mtu = rig_mtu,
		.dest_qp_num = dest_qpn,
		.rq_psn = rig_psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
	};
	if (rig_udp) {
		m->dest.is_global = true;
		rig_gid_of(addr_of[dest_qpn >> 16 & (SM_SLOTS - 1)], m->dest.dgid);
	}
}

void
rig_rts_mod(struct ib_uverbs_modify_qp *m)
{
	*m = (struct ib_uverbs_modify_qp){
		.attr_mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC,
		.qp_state = IBV_QPS_RTS,
		.timeout = rig_timeout,
		.retry_cnt = rig_retry,
		.rnr_retry = rig_rnr_retry,
		.sq_psn = rig_psn,
		.max_rd_atomic = 4,
	};
}

void
rig_mod(const struct rig_qp *q, enum ibv_qp_state to, uint32_t dest_qpn, uint32_t qkey,
	struct ib_uverbs_modify_qp *m)
{
	bool ud = q->type == SM_UD, dct = q->type == SM_DCT, dci = q->type == SM_DCI;
	const uint32_t reliable = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;

	if (to == IBV_QPS_INIT) {
		rig_init_mod(m);
		m->qkey = qkey;
		if (ud || dci)
			m->attr_mask &= ~(uint32_t)IBV_QP_ACCESS_FLAGS;
		m->attr_mask |= ud ? IBV_QP_QKEY : 0;
	} else if (to == IBV_QPS_RTR) {
		rig_rtr_mod(m, dest_qpn);
		if (q->type == SM_UC)
			m->attr_mask &= ~reliable;
		if (ud || dct || dci)
			m->attr_mask = IBV_QP_STATE | (ud ? 0 : IBV_QP_PATH_MTU) |
				(dct ? IBV_QP_AV | IBV_QP_MIN_RNR_TIMER : 0);
	} else {
		rig_rts_mod(m);
		if (ud || q->type == SM_UC)
			m->attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
		if (dci) /* As drivers have it: the NIC chooses. */
			m->sq_psn = 0;
	}
}

static void
go(struct rig_qp *q, uint32_t dest_qpn, uint32_t qkey)
{
	enum ibv_qp_state last = q->type == SM_DCT ? IBV_QPS_RTR : IBV_QPS_RTS;
	struct ib_uverbs_modify_qp m;

	for (enum ibv_qp_state to = IBV_QPS_INIT; to <= last; to++) {
		rig_mod(q, to, dest_qpn, qkey, &m);
		assert_int_equal(sm_qp_modify(q->host->nic, q->qp, &m), 0);
	}
}

void
rig_to_rts(struct rig_qp *q, uint32_t dest_qpn)
{
	go(q, dest_qpn, 0);
}

void
rig_ready(struct rig_qp *q, uint32_t qkey)
{
	go(q, 0, qkey);
}

void
rig_ready_open(struct rig_host *h, struct rig_qp *q, enum sm_qp_type type, uint32_t qkey)
{
	struct rig_qp_conf conf = {.type = type};

	rig_qp_open(h, q, &conf);
	rig_ready(q, qkey);
}

void
rig_dct_open(struct rig_host *h, struct rig_dct *d, uint64_t key)
{
	struct rig_qp_conf conf = {.type = SM_DCT, .dc_key = key, .srq = &d->srq};

	d->posted = 0;
	rig_srq_open(h, &d->srq, 64, 5);
	rig_qp_open(h, &d->qp, &conf);
	rig_ready(&d->qp, 0);
}

void
rig_dct_close(struct rig_dct *d)
{
	rig_qp_close(&d->qp);
	rig_srq_close(d->qp.host, &d->srq);
}

void
rig_dct_recv(struct rig_dct *d, void *addr, uint32_t len)
{
	uint32_t i = d->posted++ % d->srq.nwqe;

	rig_srq_recv(&d->srq, i, (i + 1) % d->srq.nwqe, addr, len, d->qp.host->key);
}

void
rig_connect(struct rig_qp *a, struct rig_qp *b)
{
	rig_to_rts(a, b->qpn);
	rig_to_rts(b, a->qpn);
}

void
rig_link_open(struct rig_host *a, struct rig_qp *qa, struct rig_host *b, struct rig_qp *qb,
	const struct rig_qp_conf *conf)
{
	rig_qp_open(a, qa, conf);
	rig_qp_open(b, qb, conf);
	rig_connect(qa, qb);
}

void
rig_link_close(struct rig_qp *qa, struct rig_qp *qb)
{
	rig_qp_close(qa);
	rig_qp_close(qb);
}

void
rig_set_state(struct rig_qp *q, enum ibv_qp_state state)
{
	struct ib_uverbs_modify_qp m = {.attr_mask = IBV_QP_STATE, .qp_state = state};

	assert_int_equal(sm_qp_modify(q->host->nic, q->qp, &m), 0);
	if (state == IBV_QPS_RESET) { /* As libmlx5 does, after the command. */
		q->dbrec[0] = q->dbrec[1] = 0;
		q->sq_pi = q->rq_pi = 0;
	}
}

void
rig_wqe(struct rig_wqe *w, uint8_t op, uint8_t fm_ce_se, uint32_t imm)
{
	struct mlx5_wqe_ctrl_seg *c = (void *)w->b;

	memset(w, 0, sizeof(*w));
	c->opmod_idx_opcode = op; /* rig_queue() completes it. */
	c->fm_ce_se = fm_ce_se;
	c->imm = htobe32(imm);
	w->len = sizeof(*c);
}

static void *
wqe_room(struct rig_wqe *w, uint32_t bytes)
{
	void *p = w->b + w->len;

	bytes = (bytes + 15) & ~15u;
	assert_true(w->len + bytes <= sizeof(w->b));
	w->len += bytes;
	return p;
}

void
rig_wqe_av(struct rig_wqe *w, uint64_t key, uint32_t qpn, uint16_t dlid, const uint8_t *dgid)
{
	struct mlx5_wqe_av av = {.rlid = htobe16(dlid)};
	uint8_t gid[16];

	if (rig_udp) {
		rig_gid_of(addr_of[qpn >> 16 & (SM_SLOTS - 1)], gid);
		dgid = gid;
	}
	av.dqp_dct = htobe32(qpn | (dgid != NULL ? 1u << 31 : 0));
	if (key >> 32 == 0)
		av.key.qkey.qkey = htobe32((uint32_t)key);
	else
		av.key.dc_key = htobe64(key);
	if (dgid != NULL) {
		av.tclass = 0x12;
		av.hop_limit = 0x34;
		av.grh_gid_fl = htobe32(1u << 30 | 0x56789);
		memcpy(av.rgid, dgid, sizeof(av.rgid));
	}
	memcpy(wqe_room(w, dgid != NULL ? 48 : 16), &av, dgid != NULL ? 48 : 16);
}

void
rig_wqe_raddr(struct rig_wqe *w, const void *raddr, uint32_t rkey)
{
	struct mlx5_wqe_raddr_seg *s = wqe_room(w, sizeof(*s));

	s->raddr = htobe64((uintptr_t)raddr);
	s->rkey = htobe32(rkey);
}

void
rig_wqe_atomic(struct rig_wqe *w, uint64_t swap_add, uint64_t compare)
{
	struct mlx5_wqe_atomic_seg *s = wqe_room(w, sizeof(*s));

	s->swap_add = htobe64(swap_add);
	s->compare = htobe64(compare);
}

void
rig_wqe_data(struct rig_wqe *w, const void *addr, uint32_t len, uint32_t lkey)
{
	struct mlx5_wqe_data_seg *s = wqe_room(w, sizeof(*s));

	s->byte_count = htobe32(len);
	s->lkey = htobe32(lkey);
	s->addr = htobe64((uintptr_t)addr);
}

void
rig_wqe_inline(struct rig_wqe *w, const void *data, uint32_t len)
{
	uint8_t *p = wqe_room(w, 4 + len);
	uint32_t head = htobe32(MLX5_INLINE_SEG | len);

	memcpy(p, &head, 4);
	memcpy(p + 4, data, len);
}

void
rig_wqe_rdma(struct rig_wqe *w, uint8_t op, const void *raddr, uint32_t rkey, const void *data,
	uint32_t len, uint32_t lkey)
{
	rig_wqe(w, op, 0, 0);
	rig_wqe_raddr(w, raddr, rkey);
	rig_wqe_data(w, data, len, lkey);
}

uint16_t
rig_queue(struct rig_qp *q, struct rig_wqe *w)
{
	struct mlx5_wqe_ctrl_seg *c = (void *)w->b;
	uint16_t at = q->sq_pi;

	c->opmod_idx_opcode = htobe32((uint32_t)at << 8 | (c->opmod_idx_opcode & 0xff));
	c->qpn_ds = htobe32(q->qpn << 8 | w->len / 16);
	for (uint32_t off = 0; off < w->len; off += 16) /* Goes round the end in units of 16. */
		memcpy(q->sq + ((size_t)at * 64 + off) % ((size_t)q->sq_nbb * 64), w->b + off, 16);
	q->sq_pi = (uint16_t)(at + (w->len + 63) / 64);
	q->last = at;
	return at;
}

void
rig_ring(struct rig_qp *q)
{
	uint64_t v;

	/* As a driver does: the first words of the newest WQE. */
	memcpy(&v, q->sq + (size_t)(q->last & (q->sq_nbb - 1)) * 64, sizeof(v));
	crpc_store_release((_Atomic uint32_t *)&q->dbrec[1], htobe32(q->sq_pi));
	crpc_store_release(
		(_Atomic uint64_t *)(void *)(q->host->uar + 0x800 + (q->bf++ & 1) * 0x100), v);
}

uint16_t
rig_post(struct rig_qp *q, struct rig_wqe *w)
{
	uint16_t at = rig_queue(q, w);

	rig_ring(q);
	return at;
}

uint16_t
rig_send(struct rig_qp *q, uint8_t op, uint32_t imm, const void *data, uint32_t len)
{
	struct rig_wqe w;

	rig_wqe(&w, op, MLX5_WQE_CTRL_CQ_UPDATE, imm);
	if (data != NULL)
		rig_wqe_data(&w, data, len, q->host->key);
	return rig_post(q, &w);
}

uint16_t
rig_rdma(struct rig_qp *q, uint8_t op, uint32_t imm, const void *raddr, uint32_t rkey,
	const void *data, uint32_t len)
{
	struct rig_wqe w;

	rig_wqe(&w, op, MLX5_WQE_CTRL_CQ_UPDATE, imm);
	rig_wqe_raddr(&w, raddr, rkey);
	rig_wqe_data(&w, data, len, q->host->key);
	return rig_post(q, &w);
}

uint16_t
rig_send_to(struct rig_qp *q, uint32_t imm, uint64_t key, uint32_t qpn, const uint8_t *dgid,
	const void *data, uint32_t len)
{
	struct rig_wqe w;

	rig_wqe(&w, MLX5_OPCODE_SEND_IMM, MLX5_WQE_CTRL_CQ_UPDATE, imm);
	rig_wqe_av(&w, key, qpn, SM_LID, dgid);
	rig_wqe_data(&w, data, len, q->host->key);
	return rig_post(q, &w);
}

uint16_t
rig_fetch_add(
	struct rig_qp *q, const void *raddr, uint32_t rkey, uint64_t add, void *old, uint32_t len)
{
	struct rig_wqe w;

	rig_wqe(&w, MLX5_OPCODE_ATOMIC_FA, MLX5_WQE_CTRL_CQ_UPDATE, 0);
	rig_wqe_raddr(&w, raddr, rkey);
	rig_wqe_atomic(&w, add, 0);
	rig_wqe_data(&w, old, len, q->host->key);
	return rig_post(q, &w);
}

void
rig_recv(struct rig_qp *q, void *addr, uint32_t len, uint32_t lkey)
{
	struct mlx5_wqe_data_seg *s = (void *)(q->rq +
		((size_t)(q->rq_pi & (q->rq_nwqe - 1)) << q->rq_shift));
	uint32_t n = (1u << q->rq_shift) / 16;

	memset((void *)s, 0, n * sizeof(*s));
	if (len != 0) {
		s->byte_count = htobe32(len);
		s->lkey = htobe32(lkey);
		s->addr = htobe64((uintptr_t)addr);
		s++;
		n--;
	}
	if (n != 0)
		s->lkey = htobe32(MLX5_INVALID_LKEY);
	q->rq_pi++;
	crpc_store_release((_Atomic uint32_t *)&q->dbrec[0], htobe32(q->rq_pi));
}

void
rig_srq_recv(struct rig_srq *s, uint32_t index, uint32_t next, void *addr, uint32_t len,
	uint32_t lkey)
{
	uint8_t *wqe = s->buf + ((size_t)index << s->shift);
	struct mlx5_wqe_srq_next_seg *n = (void *)wqe;
	struct mlx5_wqe_data_seg *d = (void *)(wqe + 16);

	n->next_wqe_index = htobe16((uint16_t)next);
	d->byte_count = htobe32(len);
	d->lkey = htobe32(lkey);
	d->addr = htobe64((uintptr_t)addr);
	if (s->shift > 5) {
		d[1].byte_count = 0;
		d[1].lkey = htobe32(MLX5_INVALID_LKEY);
	}
	s->posted++;
	crpc_store_release((_Atomic uint32_t *)&s->dbrec[0], htobe32(s->posted & 0xffff));
}

void
rig_cq_resize(struct rig_host *h, struct rig_cq *c, uint32_t ncqe)
{
	uint8_t *buf = cq_buf(ncqe, c->size), *from, *to;

	assert_int_equal(sm_cq_resize(h->nic, c->cq, buf, ncqe, c->size), 0);
	for (uint32_t i = c->ci;; i++) {
		from = c->buf + (size_t)(i & (c->ncqe - 1)) * c->size + c->size - 64;
		assert_int_equal(from[63] & 1, i / c->ncqe & 1);
		if (from[63] >> 4 == MLX5_CQE_RESIZE_CQ)
			break;
		/* One further, as the marker takes a number. */
		to = buf + (size_t)((i + 1) & (ncqe - 1)) * c->size + c->size - 64;
		memcpy(to, from, 63);
		to[63] = (uint8_t)((from[63] & ~1u) | ((i + 1) / ncqe & 1));
		assert_true(i - c->ci < c->ncqe);
	}
	free(c->buf);
	c->buf = buf;
	c->ncqe = ncqe;
	c->ci++;
	crpc_store_release((_Atomic uint32_t *)&c->dbrec[0], htobe32(c->ci & 0xffffff));
}

struct mlx5_cqe64 *
rig_poll(struct rig_cq *c)
{
	uint8_t *slot = c->buf + (size_t)(c->ci & (c->ncqe - 1)) * c->size + c->size - 64;
	uint8_t own = crpc_load_acquire((_Atomic uint8_t *)slot + 63);
	uint8_t phase = (uint8_t)((c->ci / c->ncqe) & 1);

	if (own >> 4 == MLX5_CQE_INVALID || (own & 1) != phase)
		return NULL;
	memcpy(&c->last, slot, sizeof(c->last));
	c->ci++;
	crpc_store_release((_Atomic uint32_t *)&c->dbrec[0], htobe32(c->ci & 0xffffff));
	return &c->last;
}

void
rig_run(struct rig_host *a, struct rig_host *b)
{
	for (uint32_t quiet = 0; quiet < 8;) {
		uint32_t work = sm_nic_progress(a->nic, rig_now);

		if (b != NULL && b != a)
			work += sm_nic_progress(b->nic, rig_now);
		rig_now += 1000;
		quiet = work == 0 ? quiet + 1 : 0;
	}
}

struct mlx5_cqe64 *
rig_expect(struct rig_host *a, struct rig_host *b, struct rig_cq *cq)
{
	time_t end = time(NULL) + 30;

	for (uint32_t i = 1; i % 1024 != 0 || time(NULL) < end; i++) {
		struct mlx5_cqe64 *c = rig_poll(cq);

		if (c != NULL)
			return c;
		sm_nic_progress(a->nic, rig_now);
		if (b != NULL && b != a)
			sm_nic_progress(b->nic, rig_now);
		rig_now += 1000;
		if (i % 64 == 0)
			sched_yield(); /* The other side may be another process on this core. */
	}
	fail_msg("no completion came");
	return NULL;
}
