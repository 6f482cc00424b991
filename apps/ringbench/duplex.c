/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The timed loops of rpc and latency on the ring whose replies overwrite their requests.
 *
 * The server reads every word of a request and writes every word of its reply. The reply holds what
 * the request held, each word raised by one, so that a check distinguishes a reply from an
 * untouched request.
 */
#include "app_msg.h"
#include "crpc_clock.h"
#include "crpc_spsc_duplex.h"
#include "rb.h"

/* ---- the loops: size, burst and check are constants where they are called ---- */

crpc_inline uint64_t
client(struct rb_slice *s, struct crpc_spsc_duplex_client *c, uint32_t esize, uint32_t burst,
	bool check, uint64_t end)
{
	uint32_t inflight = s->c.inflight, n, want, turn = 0;
	uint64_t done = 0, sent = 0, bad = 0;
	void *first;

	do {
		while (sent - done < inflight) {
			want = inflight - (uint32_t)(sent - done);
			n = crpc_spsc_duplex_reserve(c, esize,
				burst == 1             ? 1
					: want < burst ? want
						       : burst,
				&first);
			for (uint32_t i = 0; i < n; i++)
				app_msg_fill((char *)first + (size_t)i * esize, esize, sent + i);
			crpc_spsc_duplex_commit(c, n);
			sent += n;
		}
		while ((n = crpc_spsc_duplex_poll(c, esize, burst, &first)) != 0) {
			for (uint32_t i = 0; i < n; i++)
				bad += app_msg_read((char *)first + (size_t)i * esize, esize,
					check, done + i + 1);
			crpc_spsc_duplex_release(c);
			done += n;
		}
	} while ((++turn & 63) != 0 || crpc_clock_ticks() < end);
	crpc_store_relaxed(&s->done, done);
	return bad;
}

crpc_inline void
server(struct rb_slice *s, struct crpc_spsc_duplex_server *e, uint32_t esize, uint32_t burst)
{
	void *first;
	uint32_t n;

	while (crpc_load_relaxed(&s->stop) == 0) {
		while ((n = crpc_spsc_duplex_recv(e, esize, burst, &first)) != 0) {
			for (uint32_t i = 0; i < n; i++)
				app_msg_raise((char *)first + (size_t)i * esize, esize);
			crpc_spsc_duplex_answer(e, n);
		}
	}
}

crpc_inline uint64_t
lone_client(struct rb_slice *s, struct crpc_spsc_duplex_client *c, uint32_t esize, bool check,
	uint64_t end)
{
	uint64_t done = 0, bad = 0;
	uint32_t turn = 0;
	void *msg;

	do {
		msg = crpc_spsc_lone_reserve(c, esize);
		app_msg_fill(msg, esize, done);
		crpc_spsc_lone_commit(c, esize);
		while ((msg = crpc_spsc_lone_poll(c, esize)) == NULL)
			if ((++turn & 1023) == 0 && crpc_clock_ticks() >= end)
				goto over;
		bad += app_msg_read(msg, esize, check, done + 1);
		done++;
	} while ((done & 63) != 0 || crpc_clock_ticks() < end);
over:
	crpc_store_relaxed(&s->done, done);
	return bad;
}

crpc_inline void
lone_server(struct rb_slice *s, struct crpc_spsc_duplex_server *e, uint32_t esize)
{
	uint32_t turn = 0;
	void *msg;

	while ((++turn & 63) != 0 || crpc_load_relaxed(&s->stop) == 0) {
		msg = crpc_spsc_lone_recv(e, esize);
		if (msg == NULL)
			continue;
		app_msg_raise(msg, esize);
		crpc_spsc_lone_answer(e);
	}
}

/* ---- instances ---- */

crpc_inline void
first_of(struct rb_slice *s, struct crpc_spsc_duplex_client c, uint32_t esize, bool check)
{
	uint64_t end = crpc_clock_ticks() + s->c.ticks, bad;

	if (s->c.pattern == RB_LATENCY)
		bad = lone_client(s, &c, esize, check, end);
	else if (s->c.burst == 1)
		bad = client(s, &c, esize, 1, check, end);
	else
		bad = client(s, &c, esize, s->c.burst, check, end);
	crpc_fetch_add_relaxed(&s->bad, bad);
}

crpc_inline void
second_of(struct rb_slice *s, struct crpc_spsc_duplex_server e, uint32_t esize)
{
	if (s->c.pattern == RB_LATENCY)
		lone_server(s, &e, esize);
	else if (s->c.burst == 1)
		server(s, &e, esize, 1);
	else
		server(s, &e, esize, s->c.burst);
}

void
rb_duplex_run(struct rb_slice *s, int side)
{
	struct crpc_spsc_duplex_client c = {0};
	struct crpc_spsc_duplex_server e = {0};
	int rc = side == 0 ? crpc_spsc_duplex_client_attach(&c, s->to, s->len)
			   : crpc_spsc_duplex_server_attach(&e, s->to, s->len);

	if (rc != 0)
		return;
	if (side == 0 && s->c.check) {
		first_of(s, c, s->c.size, true);
		return;
	}
	switch (s->c.size) {
#define CASE(size)                                                                                 \
	case size:                                                                                 \
		if (side == 0)                                                                     \
			first_of(s, c, size, false);                                               \
		else                                                                               \
			second_of(s, e, size);                                                     \
		break;
		CASE(8) CASE(16) CASE(32) CASE(64) CASE(128) CASE(256)
#undef CASE
	}
}
