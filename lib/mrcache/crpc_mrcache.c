/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions that are given lie in a sorted array of pointers; they are disjoint, so the last one that
 * starts at or before an address is the only one that can hold it. Regions that must go but are in
 * use are in no array any more, and wait in their place for the last put().
 */
#include "crpc_mrcache.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_conf.h"
#include "mrcache_watch.h"

#define PAGE      UINT64_C(4096)
#define HUGE_PAGE (UINT64_C(2) << 20)

struct region {
	struct crpc_rdma_mr mr;
	uint64_t used; /* The cache's clock when it was last given. */
	uint32_t users;
	bool listed;
	bool watched; /* the kernel reports when it is unmapped */
};

struct crpc_mrcache {
	struct crpc_mrcache_conf conf;
	struct crpc_mrcache_stats stats;
	uint64_t clock;
	struct region *region; /* mr.addr NULL: free */
	struct region **list;
	uint32_t n;
	bool watches;  /* what is unmapped is reported */
	uint64_t seen; /* reports so far */
};

static void
watch_join(struct crpc_mrcache *c)
{
	static _Atomic bool logged;
	int rc = __crpc_mrwatch_join(&c->seen);

	c->watches = rc == 0;
	if (rc == 0 || crpc_exchange_acq_rel(&logged, true))
		return;
	crpc_warn("cache of registrations: userfaultfd is not allowed here (%s), so what is "
		  "unmapped is not reported: call crpc_mrcache_invalidate() before; or set "
		  "vm.unprivileged_userfaultfd to 1, or give CAP_SYS_PTRACE or read and write "
		  "permission on /dev/userfaultfd, and in a container allow the system call",
		strerror(-rc));
}

struct crpc_mrcache *
crpc_mrcache_create(const struct crpc_mrcache_conf *conf)
{
	struct crpc_mrcache *c;

	if (conf->dev == NULL)
		return crpc_null(crpc_fail(-EINVAL, "cache of registrations: no device"));
	if (crpc_conf_range("max_regions", conf->max_regions, 0, CRPC_MRCACHE_REGIONS_MAX))
		return crpc_null(-EINVAL);
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return NULL;
	c->conf = *conf;
	CRPC_CONF_DEFAULT(c->conf.max_regions, 128);
	CRPC_CONF_DEFAULT(c->conf.max_bytes, UINT64_MAX);
	c->region = calloc(c->conf.max_regions, sizeof(*c->region));
	c->list = calloc(c->conf.max_regions, sizeof(struct region *));
	if (c->region == NULL || c->list == NULL) {
		crpc_mrcache_free(c);
		return crpc_null(-ENOMEM);
	}
	if (conf->watch)
		watch_join(c);
	return c;
}

static uint64_t
start_of(const struct region *r)
{
	return (uintptr_t)r->mr.addr;
}

static uint64_t
end_of(const struct region *r)
{
	return (uintptr_t)r->mr.addr + r->mr.len;
}

/* Regions that end at or before an address come before the index. */
static uint32_t
place_of(const struct crpc_mrcache *c, uint64_t addr)
{
	uint32_t lo = 0, hi = c->n, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (end_of(c->list[mid]) <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static void
region_dereg(struct crpc_mrcache *c, struct region *r)
{
	c->stats.regions--;
	c->stats.bytes -= r->mr.len;
	crpc_rdma_mr_dereg(c->conf.dev, &r->mr);
	memset(r, 0, sizeof(*r));
}

void
crpc_mrcache_free(struct crpc_mrcache *c)
{
	if (c == NULL)
		return;
	for (uint32_t i = 0; c->region != NULL && i < c->conf.max_regions; i++)
		if (c->region[i].mr.addr != NULL)
			region_dereg(c, &c->region[i]);
	if (c->watches)
		__crpc_mrwatch_leave();
	free(c->region);
	free(c->list);
	free(c);
}

/* Give it out no more. */
static void
region_retire(struct crpc_mrcache *c, uint32_t at)
{
	struct region *r = c->list[at];

	memmove(&c->list[at], &c->list[at + 1], (--c->n - at) * sizeof(struct region *));
	r->listed = false;
	if (r->users == 0)
		region_dereg(c, r);
}

/* Removes the least recently used one without users. False: there is none. */
static bool
evict(struct crpc_mrcache *c)
{
	uint32_t oldest = UINT32_MAX;

	for (uint32_t i = 0; i < c->n; i++)
		if (c->list[i]->users == 0 &&
			(oldest == UINT32_MAX || c->list[i]->used < c->list[oldest]->used))
			oldest = i;
	if (oldest == UINT32_MAX)
		return false;
	c->stats.evictions++;
	region_retire(c, oldest);
	return true;
}

/*
 * The bounds of the mapping that an address lies in, if it may be of huge pages: one of a file or
 * of the kernel's anonymous huge pages, that begins and ends at multiples of them. Others may have
 * grown together from several, whose owners unmap them one by one. /proc/self/smaps has the
 * size of the pages, but walks through all of them.
 */
static bool
huge_mapping_of(uint64_t addr, uint64_t *lo, uint64_t *hi)
{
	unsigned long long a, b;
	bool found = false;
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");

	if (f == NULL)
		return false;
	while (!found && fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "%llx-%llx ", &a, &b) != 2 || addr >= b)
			continue;
		if (addr < a || (a | b) % HUGE_PAGE != 0 || strchr(line, '/') == NULL)
			break;
		*lo = a;
		*hi = b;
		found = true;
	}
	fclose(f);
	return found;
}

/* Widen a range to whole pages, to huge ones within their mapping. */
static void
widen(uint64_t *start, uint64_t *end)
{
	uint64_t lo, hi;

	if (huge_mapping_of(*start, &lo, &hi) && *end <= hi) {
		*start &= ~(HUGE_PAGE - 1);
		*end = crpc_align_up(*end, HUGE_PAGE);
	}
	*start &= ~(PAGE - 1);
	*end = crpc_align_up(*end, PAGE);
}

static struct region *
region_place(struct crpc_mrcache *c, uint64_t len)
{
	uint32_t i;

	while (c->stats.regions == c->conf.max_regions || len > c->conf.max_bytes ||
		c->stats.bytes > c->conf.max_bytes - len) {
		if (len > c->conf.max_bytes || !evict(c))
			return NULL;
	}
	for (i = 0; c->region[i].mr.addr != NULL; i++)
		;
	return &c->region[i];
}

/* Register [start, end), which overlaps no other region. */
static int
region_add(struct crpc_mrcache *c, uint64_t start, uint64_t end, struct region **out)
{
	struct region *r = region_place(c, end - start);
	uint32_t at;
	int rc;

	if (r == NULL)
		return crpc_fail(-ENOSPC,
			"cache of registrations: no room for %llu bytes more: %u of %u regions, "
			"%llu bytes of %llu",
			(unsigned long long)(end - start), c->stats.regions, c->conf.max_regions,
			(unsigned long long)c->stats.bytes, (unsigned long long)c->conf.max_bytes);
	/* first it is watched: what is unmapped from here on is reported */
	r->watched = c->watches &&
		__crpc_mrwatch_add(start & ~(PAGE - 1), crpc_align_up(end, PAGE));
	rc = crpc_rdma_mr_reg(c->conf.dev, (void *)(uintptr_t)start, end - start, &r->mr);
	if (rc != 0) {
		memset(r, 0, sizeof(*r));
		return rc;
	}
	c->stats.unwatched += c->watches && !r->watched;
	r->listed = true;
	c->stats.regions++;
	c->stats.bytes += end - start;
	at = place_of(c, start);
	memmove(&c->list[at + 1], &c->list[at], (c->n++ - at) * sizeof(struct region *));
	c->list[at] = r;
	*out = r;
	return 0;
}

/* A range grows by the regions that overlap it; these go. */
static void
overlaps_merge(struct crpc_mrcache *c, uint64_t *start, uint64_t *end)
{
	uint32_t at = place_of(c, *start);

	while (at < c->n && start_of(c->list[at]) < *end) {
		*start = crpc_min(*start, start_of(c->list[at]));
		*end = crpc_max(*end, end_of(c->list[at]));
		c->stats.merges++;
		region_retire(c, at);
	}
}

static int
region_make(struct crpc_mrcache *c, uint64_t addr, uint64_t len, struct region **out)
{
	uint64_t start = addr, end = addr + len, one_start, one_end;
	int rc;

	widen(&start, &end);
	one_start = start;
	one_end = end;
	overlaps_merge(c, &start, &end);
	rc = region_add(c, start, end, out);
	/* part of what was there may be unmapped by now, or all together be too much */
	if (rc != 0 && (one_start != start || one_end != end))
		rc = region_add(c, one_start, one_end, out);
	/* nor need whole pages be mapped */
	if (rc != 0 && rc != -ENOSPC && (one_start != addr || one_end != addr + len))
		rc = region_add(c, addr, addr + len, out);
	return rc;
}

/* Regions that overlap a range are given out no more. */
static uint32_t
forget(struct crpc_mrcache *c, uint64_t start, uint64_t end)
{
	uint32_t at = place_of(c, start), n = 0;

	for (; at < c->n && start_of(c->list[at]) < end; n++)
		region_retire(c, at);
	return n;
}

/* A region goes here, in its owner's thread; that may itself unmap something, which is reported. */
void
crpc_mrcache_progress(struct crpc_mrcache *c)
{
	uint64_t start, end;

	if (!c->watches)
		return;
	__crpc_mrwatch_settle();
	while (crpc_unlikely(__crpc_mrwatch_next(&c->seen, &start, &end)))
		c->stats.unmapped += forget(c, start, end);
}

bool
crpc_mrcache_watches(const struct crpc_mrcache *c)
{
	return c->watches;
}

static struct region *
lookup(const struct crpc_mrcache *c, uint64_t addr, uint64_t len)
{
	uint32_t at = place_of(c, addr);

	if (at < c->n && start_of(c->list[at]) <= addr && len <= end_of(c->list[at]) - addr)
		return c->list[at];
	return NULL;
}

int
crpc_mrcache_get(
	struct crpc_mrcache *c, const void *addr, uint64_t len, const struct crpc_rdma_mr **mr)
{
	uint64_t at = (uintptr_t)addr;
	struct region *r;
	int rc;

	if (len == 0 || at == 0 || at + len < at || at + len > UINT64_MAX / 2) {
		c->stats.failed++;
		return -EINVAL;
	}
	crpc_mrcache_progress(c);
	r = lookup(c, at, len);
	if (r != NULL) {
		c->stats.hits++;
	} else {
		rc = region_make(c, at, len, &r);
		c->stats.misses += rc == 0;
		c->stats.failed += rc != 0;
		if (rc != 0)
			return rc;
	}
	r->used = ++c->clock;
	r->users++;
	c->stats.users++;
	*mr = &r->mr;
	return 0;
}

void
crpc_mrcache_put(struct crpc_mrcache *c, const struct crpc_rdma_mr *mr)
{
	struct region *r = &c->region[(const struct region *)(const void *)mr - c->region];
	uint32_t at;

	r->users--;
	c->stats.users--;
	if (r->users != 0)
		return;
	if (!r->listed) {
		region_dereg(c, r);
	} else if (c->watches && !r->watched) {
		/* its unmapping would not be reported */
		for (at = place_of(c, start_of(r)); c->list[at] != r; at++)
			;
		region_retire(c, at);
	}
}

int
crpc_mrcache_invalidate(struct crpc_mrcache *c, const void *addr, uint64_t len)
{
	uint64_t start = (uintptr_t)addr, end = start + len;
	int rc = 0;

	c->stats.invalidated += forget(c, start, end);
	for (uint32_t i = 0; i < c->conf.max_regions; i++)
		if (c->region[i].mr.addr != NULL && start_of(&c->region[i]) < end &&
			end_of(&c->region[i]) > start)
			rc = -EBUSY;
	return rc;
}

const struct crpc_mrcache_stats *
crpc_mrcache_stats(const struct crpc_mrcache *c)
{
	return &c->stats;
}
