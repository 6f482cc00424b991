/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions that are given lie in a tree; they are disjoint. Regions that must go but are in use are
 * not in the tree any more, and wait in their place for the last put().
 */
#include "crpc_mrcache.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_conf.h"
#include "mrcache_watch.h"

#define PAGE      UINT64_C(4096)
#define HUGE_PAGE (UINT64_C(2) << 20)

struct region {
	struct mr_range at; /* of mr; first, for the tree */
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
	void *tree;            /* those that are listed */
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
	if (c->region == NULL) {
		free(c);
		return NULL;
	}
	if (conf->watch)
		watch_join(c);
	return c;
}

/* Ranges that overlap count as equal: of disjoint ones, the tree gives one that overlaps. */
static int
range_compare(const void *a, const void *b)
{
	const struct mr_range *x = a, *y = b;

	return x->end <= y->start ? -1 : x->start >= y->end;
}

/* A listed region that overlaps a range; NULL: there is none. */
static struct region *
overlap_find(const struct crpc_mrcache *c, const struct mr_range *range)
{
	struct region **node = tfind(range, &c->tree, range_compare);

	return node != NULL ? *node : NULL;
}

static void
region_dereg(struct crpc_mrcache *c, struct region *r)
{
	c->stats.regions--;
	c->stats.bytes -= r->mr.len;
	crpc_rdma_mr_dereg(c->conf.dev, &r->mr);
	memset(r, 0, sizeof(*r));
}

/* Give it out no more. */
static void
region_retire(struct crpc_mrcache *c, struct region *r)
{
	tdelete(r, &c->tree, range_compare);
	r->listed = false;
	if (r->users == 0)
		region_dereg(c, r);
}

void
crpc_mrcache_free(struct crpc_mrcache *c)
{
	if (c == NULL)
		return;
	for (uint32_t i = 0; i < c->conf.max_regions; i++)
		if (c->region[i].mr.addr != NULL) {
			if (c->region[i].listed)
				tdelete(&c->region[i], &c->tree, range_compare);
			region_dereg(c, &c->region[i]);
		}
	if (c->watches)
		__crpc_mrwatch_leave();
	free(c->region);
	free(c);
}

/* Removes the least recently used one without users. False: there is none. */
static bool
evict(struct crpc_mrcache *c)
{
	struct region *oldest = NULL;

	for (struct region *r = c->region; r < c->region + c->conf.max_regions; r++)
		if (r->listed && r->users == 0 && (oldest == NULL || r->used < oldest->used))
			oldest = r;
	if (oldest == NULL)
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
huge_mapping_of(uint64_t addr, struct mr_range *map)
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
		*map = (struct mr_range){a, b};
		found = true;
	}
	fclose(f);
	return found;
}

/* A range widened to whole pages, to huge ones within their mapping. */
static struct mr_range
widened(struct mr_range range)
{
	struct mr_range map;
	bool huge = huge_mapping_of(range.start, &map) && range.end <= map.end;
	uint64_t page = huge ? HUGE_PAGE : PAGE;

	return (struct mr_range){range.start & ~(page - 1), crpc_align_up(range.end, page)};
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

/* Register a range, which overlaps no listed region. */
static int
region_add(struct crpc_mrcache *c, struct mr_range range, struct region **out)
{
	uint64_t len = range.end - range.start;
	struct region *r = region_place(c, len);
	int rc = -ENOMEM;

	if (r == NULL)
		return crpc_fail(-ENOSPC,
			"cache of registrations: no room for %llu bytes more: %u of %u regions, "
			"%llu bytes of %llu",
			(unsigned long long)len, c->stats.regions, c->conf.max_regions,
			(unsigned long long)c->stats.bytes, (unsigned long long)c->conf.max_bytes);
	/* first it is watched: what is unmapped from here on is reported */
	r->watched = c->watches &&
		__crpc_mrwatch_add(range.start & ~(PAGE - 1), crpc_align_up(range.end, PAGE));
	r->at = range;
	if (tsearch(r, &c->tree, range_compare) != NULL)
		rc = crpc_rdma_mr_reg(c->conf.dev, (void *)range.start, len, &r->mr);
	if (rc != 0) {
		tdelete(r, &c->tree, range_compare);
		memset(r, 0, sizeof(*r));
		return rc;
	}
	c->stats.unwatched += c->watches && !r->watched;
	r->listed = true;
	c->stats.regions++;
	c->stats.bytes += len;
	*out = r;
	return 0;
}

/* Give regions that overlap a range out no more; it grows by them. Returns how many. */
static uint32_t
overlaps_retire(struct crpc_mrcache *c, struct mr_range *range)
{
	struct region *r;
	uint32_t n = 0;

	for (; (r = overlap_find(c, range)) != NULL; n++) {
		range->start = crpc_min(range->start, r->at.start);
		range->end = crpc_max(range->end, r->at.end);
		region_retire(c, r);
	}
	return n;
}

static int
region_make(struct crpc_mrcache *c, struct mr_range want, struct region **out)
{
	struct mr_range pages = widened(want), all = pages;
	int rc;

	c->stats.merges += overlaps_retire(c, &all);
	rc = region_add(c, all, out);
	/* part of what was there may be unmapped by now, or all together be too much */
	if (rc != 0 && memcmp(&pages, &all, sizeof(all)) != 0)
		rc = region_add(c, pages, out);
	/* nor need whole pages be mapped */
	if (rc != 0 && rc != -ENOSPC && memcmp(&want, &pages, sizeof(want)) != 0)
		rc = region_add(c, want, out);
	return rc;
}

/* A region goes here, in its owner's thread; that may itself unmap something, which is reported. */
void
crpc_mrcache_progress(struct crpc_mrcache *c)
{
	struct mr_range range;

	if (!c->watches)
		return;
	__crpc_mrwatch_settle();
	while (crpc_unlikely(__crpc_mrwatch_next(&c->seen, &range)))
		c->stats.unmapped += overlaps_retire(c, &range);
}

bool
crpc_mrcache_watches(const struct crpc_mrcache *c)
{
	return c->watches;
}

int
crpc_mrcache_get(
	struct crpc_mrcache *c, const void *addr, uint64_t len, const struct crpc_rdma_mr **mr)
{
	const struct mr_range want = {(uintptr_t)addr, (uintptr_t)addr + len};
	struct region *r;
	int rc = 0;

	if (len == 0 || addr == NULL || want.end < want.start || want.end > UINT64_MAX / 2) {
		c->stats.failed++;
		return -EINVAL;
	}
	crpc_mrcache_progress(c);
	r = overlap_find(c, &want);
	if (r != NULL && r->at.start <= want.start && want.end <= r->at.end) {
		c->stats.hits++;
	} else {
		rc = region_make(c, want, &r);
		c->stats.misses += rc == 0;
		c->stats.failed += rc != 0;
	}
	if (rc != 0)
		return rc;
	r->used = ++c->clock;
	r->users++;
	c->stats.users++;
	*mr = &r->mr;
	return 0;
}

void
crpc_mrcache_put(struct crpc_mrcache *c, const struct crpc_rdma_mr *mr)
{
	struct region *r = crpc_container_of((uintptr_t)mr, struct region, mr);

	r->users--;
	c->stats.users--;
	if (r->users != 0)
		return;
	if (!r->listed)
		region_dereg(c, r);
	else if (c->watches && !r->watched) /* its unmapping would not be reported */
		region_retire(c, r);
}

int
crpc_mrcache_invalidate(struct crpc_mrcache *c, const void *addr, uint64_t len)
{
	const struct mr_range range = {(uintptr_t)addr, (uintptr_t)addr + len};
	struct mr_range grown = range;
	int rc = 0;

	c->stats.invalidated += overlaps_retire(c, &grown);
	for (uint32_t i = 0; i < c->conf.max_regions; i++)
		if (c->region[i].users != 0 && range_compare(&c->region[i], &range) == 0)
			rc = -EBUSY;
	return rc;
}

const struct crpc_mrcache_stats *
crpc_mrcache_stats(const struct crpc_mrcache *c)
{
	return &c->stats;
}
