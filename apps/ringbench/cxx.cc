/* SPDX-License-Identifier: BSD-3-Clause */
/* The loops of loops.c for C++ queues: same order of work, the queue's best calls for the burst. */
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <x86intrin.h>
#ifdef RB_HAVE_BOOST
#include <boost/lockfree/spsc_queue.hpp>
#endif
#ifdef RB_HAVE_MOODYCAMEL
#include <readerwriterqueue.h>
#endif
#ifdef RB_HAVE_ATOMIC_QUEUE
#include <atomic_queue/atomic_queue.h>
#endif

#include "rb_cxx.h"
#include "rb_transport.h"

namespace {

template <unsigned S> struct Msg {
	uint64_t w[S / 8];
};

/* Bursts of a queue that moves one message per call. */
template <class Q, class M> struct OneByOne {
	uint32_t put(const M *m, uint32_t n)
	{
		uint32_t i = 0;
		while (i < n && static_cast<Q *>(this)->put_one(m[i]))
			i++;
		return i;
	}
	uint32_t get(M *m, uint32_t n)
	{
		uint32_t i = 0;
		while (i < n && static_cast<Q *>(this)->get_one(m[i]))
			i++;
		return i;
	}
};

#ifdef RB_HAVE_BOOST
template <class M> struct Boost {
	boost::lockfree::spsc_queue<M> q;
	explicit Boost(uint32_t depth) : q(depth) {}
	uint32_t put(const M *m, uint32_t n) { return static_cast<uint32_t>(q.push(m, n)); }
	uint32_t get(M *m, uint32_t n) { return static_cast<uint32_t>(q.pop(m, n)); }
};
#endif

#ifdef RB_HAVE_MOODYCAMEL
template <class M> struct Moodycamel : OneByOne<Moodycamel<M>, M> {
	moodycamel::ReaderWriterQueue<M> q;
	explicit Moodycamel(uint32_t depth) : q(depth) {}
	bool put_one(const M &m) { return q.try_enqueue(m); }
	bool get_one(M &m) { return q.try_dequeue(m); }
};
#endif

#ifdef RB_HAVE_ATOMIC_QUEUE
template <class M> struct AtomicQueue : OneByOne<AtomicQueue<M>, M> {
	atomic_queue::AtomicQueueB2<M, std::allocator<M>, true, false, true> q;
	explicit AtomicQueue(uint32_t depth) : q(depth) {}
	bool put_one(const M &m) { return q.try_push(m); }
	bool get_one(M &m) { return q.try_pop(m); }
};
#endif

template <class M> void fill(M *m, uint64_t seq)
{
	for (unsigned i = 0; i < sizeof(M) / 8; i++)
		m->w[i] = seq + i;
}

template <class M> void use(const M &m, rb_cxx_run *r, uint64_t *seq)
{
	uint64_t sum = 0;
	for (unsigned i = 0; i < sizeof(M) / 8; i++) {
		if (r->check)
			r->bad += m.w[i] != *seq + i;
		sum += m.w[i];
	}
	++*seq;
	__asm__ __volatile__("" : : "r"(sum));
}

bool stopped(const rb_cxx_run *r)
{
	return __atomic_load_n(r->stop, __ATOMIC_RELAXED) != 0;
}

template <class Q, class M> void client(Q *out_q, Q *in_q, rb_cxx_run *r)
{
	M buf[64];
	uint64_t tx = 0, rx = 0;
	uint32_t out = 0, n, turn = 0;

	do {
		while (out < r->inflight) {
			n = r->inflight - out < r->burst ? r->inflight - out : r->burst;
			for (uint32_t i = 0; i < n; i++)
				fill(&buf[i], tx + i);
			n = out_q->put(buf, n);
			if (n == 0)
				break;
			tx += n;
			out += n;
		}
		while ((n = in_q->get(buf, r->burst)) != 0) {
			for (uint32_t i = 0; i < n; i++)
				use(buf[i], r, &rx);
			out -= n;
			r->done += n;
		}
	} while ((++turn & 63) != 0 || __rdtsc() < r->end_ticks);
}

template <class Q, class M> void server(Q *in_q, Q *out_q, rb_cxx_run *r)
{
	M buf[64];

	while (!stopped(r)) {
		uint32_t n = in_q->get(buf, r->burst), put = 0;
		while (put < n) {
			put += out_q->put(buf + put, n - put);
			if (put < n && stopped(r))
				return;
		}
	}
}

template <class Q, class M> void producer(Q *q, rb_cxx_run *r)
{
	M buf[64];
	uint64_t tx = 0;
	uint32_t turn = 0;

	do {
		for (uint32_t i = 0; i < r->burst; i++)
			fill(&buf[i], tx + i);
		tx += q->put(buf, r->burst);
	} while ((++turn & 63) != 0 || __rdtsc() < r->end_ticks);
}

template <class Q, class M> void consumer(Q *q, rb_cxx_run *r)
{
	M buf[64];
	uint64_t rx = 0;

	while (!stopped(r)) {
		uint32_t n = q->get(buf, r->burst);
		for (uint32_t i = 0; i < n; i++)
			use(buf[i], r, &rx);
		r->done += n;
	}
}

/*
 * What is done with a queue of one type: op 0 open, 1 close, 2 run the first end, 3 the second,
 * 4 only say that it is built.
 */
template <template <class> class Queue, unsigned S>
void *with(int op, void *to, void *back, uint32_t depth, rb_cxx_run *r)
{
	using M = Msg<S>;
	using Q = Queue<M>;
	Q *a = static_cast<Q *>(to), *b = static_cast<Q *>(back);
	static char built;

	if (op == 4)
		return &built;
	if (op == 0)
		return new (std::nothrow) Q(depth);
	if (op == 1)
		delete a;
	else if (op == 2 && r->stream)
		producer<Q, M>(a, r);
	else if (op == 2)
		client<Q, M>(a, b, r);
	else if (r->stream)
		consumer<Q, M>(a, r);
	else
		server<Q, M>(a, b, r);
	return nullptr;
}

template <template <class> class Queue>
void *with_size(uint32_t size, int op, void *to, void *back, uint32_t depth, rb_cxx_run *r)
{
	switch (size) {
	case 8:
		return with<Queue, 8>(op, to, back, depth, r);
	case 16:
		return with<Queue, 16>(op, to, back, depth, r);
	case 32:
		return with<Queue, 32>(op, to, back, depth, r);
	case 64:
		return with<Queue, 64>(op, to, back, depth, r);
	case 128:
		return with<Queue, 128>(op, to, back, depth, r);
	default:
		return with<Queue, 256>(op, to, back, depth, r);
	}
}

void *dispatch(int t, uint32_t size, int op, void *to, void *back, uint32_t depth, rb_cxx_run *r)
{
	switch (t) {
#ifdef RB_HAVE_BOOST
	case RB_BOOST:
		return with_size<Boost>(size, op, to, back, depth, r);
#endif
#ifdef RB_HAVE_MOODYCAMEL
	case RB_MOODYCAMEL:
		return with_size<Moodycamel>(size, op, to, back, depth, r);
#endif
#ifdef RB_HAVE_ATOMIC_QUEUE
	case RB_ATOMIC_QUEUE:
		return with_size<AtomicQueue>(size, op, to, back, depth, r);
#endif
	default:
		return nullptr;
	}
}

} // namespace

bool rb_cxx_has(int t)
{
	return dispatch(t, 8, 4, nullptr, nullptr, 0, nullptr) != nullptr;
}

void *rb_cxx_open(int t, uint32_t size, uint32_t depth)
{
	return dispatch(t, size, 0, nullptr, nullptr, depth, nullptr);
}

void rb_cxx_close(int t, uint32_t size, void *q)
{
	dispatch(t, size, 1, q, nullptr, 0, nullptr);
}

void rb_cxx_loop(int t, bool first, void *to, void *back, rb_cxx_run *run)
{
	dispatch(t, run->size, first ? 2 : 3, to, back, 0, run);
}
