/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RB_TRANSPORT_H
#define RB_TRANSPORT_H
/* What carries the messages, by one number in C and in C++. */

enum rb_transport {
	RB_FASTFORWARD,
	RB_LAMPORT,
	RB_ONESIDED,
	RB_DUPLEX,
	RB_RTE_RING,
	RB_RTE_RING_ZC,
	RB_RTE_RING_RTS, /* mesh only */
	RB_RTE_RING_HTS, /* mesh only */
	RB_CK_RING,
	RB_BOOST,
	RB_MOODYCAMEL,
	RB_ATOMIC_QUEUE,
	RB_TRANSPORTS,
};

#endif
