/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What comes over UDP: the parser, alone and in front of a whole adapter with a queue pair of each
 * type that is ready. An input is a run of packets, each behind two bytes of length; their ICRC is
 * made right, except where the length says not to. None may reach outside the registered region,
 * and what the parser takes must be the same again after it was written.
 */
#include "fuzz_adapter.h"

#include "engine/roce.h"
#include "engine/wire_udp.h"

#define PACKETS 64u
#define MEMORY 8192u
#define THEIRS 0x7f4d4d02u /* 127.77.77.2 */
#define KEEP_ICRC 0x8000u
#define CONNECT (36u + SM_ROCE_ICRC) /* Its bytes; the cookie, which no input can know, is at 28. */

static struct adapter f;

/* An address of this process alone; what it sends is not received. */
static uint32_t
ours(void)
{
	return 0x7f0000fb | ((uint32_t)getpid() & 0xffff) << 8;
}

static void
start(void)
{
	rig_udp = true;
	rig_addr = ours();
	adapter_host(&f, rig_net(), MEMORY);
	adapter_open(&f, 77, THEIRS); /* Its slot is ours, to which nothing is sent. */
	adapter_reads(&f, RC, 1);
}

/* A parsed packet, written and parsed again, is the same; and as a message it is within bounds. */
static void
parse(const uint8_t *bytes, uint32_t n)
{
	uint8_t again[SM_ROCE_BYTES];
	struct sm_roce p, q;
	uint32_t size;

	if (!sm_roce_get(bytes, n, &p))
		return;
	fuzz_check(p.len <= SM_MTU_BYTES && p.payload >= bytes && p.payload + p.len <= bytes + n);
	size = sm_roce_put(&p, again);
	fuzz_check(size == n && sm_roce_get(again, size, &q));
	fuzz_check(q.len == p.len && memcmp(&q.h, &p.h, sizeof(p.h)) == 0 &&
		q.syndrome == p.syndrome && q.word[0] == p.word[0]);
	if (sm_roce_hdr(&q))
		fuzz_check((q.h.head & 0xffff) <= SM_MTU_BYTES && q.h.dst <= 0xffffff &&
			q.h.psn <= 0xffffff);
}

/* Send it to one of ours: an input cannot know the numbers. */
static void
deliver(uint8_t *bytes, uint32_t n, bool right)
{
	struct sm_roce_path path = {THEIRS, ours(), SM_ROCE_PORT, SM_ROCE_PORT};
	uint32_t transport = n > 12 ? bytes[0] >> 5 : 0;
	uint32_t type = transport == 0 ? RC : transport == 1 ? UC : transport == 3 ? UD
			: bytes[n > 12 ? 4 : 0] % 2 != 0 ? DCI : DCT;
	uint32_t qpn = adapter_qp(&f, type)->qpn;
	uint8_t headers[SM_ROCE_IP_UDP];

	if (n > 12 + SM_ROCE_ICRC && bytes[5] == 0) {
		bytes[5] = (uint8_t)(qpn >> 16);
		bytes[6] = (uint8_t)(qpn >> 8);
		bytes[7] = (uint8_t)qpn;
	}
	if (type == DCT && bytes[0] == 0xd8 && n == CONNECT && bytes[28] == 0) {
		uint64_t cookie = htobe64(sm_udp_cookie(f.host.nic, THEIRS, bytes[21]));

		memcpy(bytes + 28, &cookie, sizeof(cookie));
	}
	sm_roce_ip_udp(&path, n, headers);
	if (right && n > 12 + SM_ROCE_ICRC)
		sm_roce_icrc(headers, bytes, n - SM_ROCE_ICRC, bytes + n - SM_ROCE_ICRC);
	sm_lock(f.host.nic);
	sm_udp_packet(f.host.nic, &path, bytes, n);
	sm_unlock(f.host.nic);
	sm_nic_progress(f.host.nic, rig_now += 100000);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input in = {data, size};
	uint8_t packet[SM_ROCE_BYTES], want[2];

	sm_roce_init();
	start();
	for (uint32_t i = 0; i < PACKETS && fuzz_take(&in, want, sizeof(want)); i++) {
		uint32_t len = (uint32_t)want[0] << 8 | want[1];
		uint32_t n = (uint32_t)fuzz_take_some(
			&in, packet, crpc_min(len & ~KEEP_ICRC, sizeof(packet)));

		parse(packet, n);
		deliver(packet, n, (len & KEEP_ICRC) == 0);
	}
	adapter_close(&f);
	return 0;
}
