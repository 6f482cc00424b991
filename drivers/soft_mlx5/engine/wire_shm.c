/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crpc_log.h"
#include "wire.h"

/* One context's place on the net. */
struct net_slot {
	_Atomic uint32_t gen;  /* Changes with every owner; 0: left in good order. */
	_Atomic uint32_t last; /* The newest generation ever given. */
	uint32_t pid;          /* For people who look at the file. */
	uint8_t guard0[CRPC_CACHE_LINE - 12];
	_Atomic uint32_t rings;   /* Counts rings made to this slot; its owner polls it. */
	_Atomic uint64_t from[SM_SLOTS / 64]; /* Whose ring waits to be mapped. */
	uint8_t guard1[CRPC_CACHE_LINE - 8 - SM_SLOTS / 8];
};
_Static_assert(sizeof(struct net_slot) == 2 * CRPC_CACHE_LINE, "the format of the wire");

/* The file `net`. Byte 0 to SM_SLOTS - 1 of it are locked by the owners of the slots, byte
 * LOCK_REGISTRY while somebody joins or leaves. */
struct net_file {
	_Atomic uint64_t magic; /* Written last. */
	uint32_t version;
	uint32_t slots;
	uint32_t ring_bytes;
	uint32_t next; /* Where the search for a free slot starts, so that numbers return late. */
	uint8_t guard[CRPC_CACHE_GUARD - 24];
	struct net_slot slot[SM_SLOTS];
};
_Static_assert(offsetof(struct net_file, slot) == 128, "the format of the wire");
#define LOCK_REGISTRY SM_SLOTS

struct sm_wire {
	struct net_file *net;
	int fd;
	uint32_t slot;
	uint32_t gen;
	char dir[128];
	void *room[SM_SLOTS]; /* Address space for the rings that are still to come. */
};

static bool
lock_byte(int fd, int cmd, short type, off_t start, off_t len)
{
	struct flock fl = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
	int rc;

	do
		rc = fcntl(fd, cmd, &fl);
	while (rc != 0 && errno == EINTR);
	return rc == 0 && (cmd != F_OFD_GETLK || fl.l_type == F_UNLCK);
}

/* Unlocked first: a child of a fork may have the open file, too, and close() then drops no lock. */
static void
net_close(int fd)
{
	lock_byte(fd, F_OFD_SETLK, F_UNLCK, 0, 0);
	close(fd);
}

/* /dev/shm is where it belongs; containers without it have /tmp. */
static const char *
net_base(void)
{
	return access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
}

static int
dir_make(const char *name, char *dir, size_t size)
{
	struct stat st;

	if (name[0] == '\0' || name[0] == '.' || strlen(name) > 64 ||
		name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
					"._-")] != '\0')
		return crpc_fail(EINVAL,
			"net name '%s': use 1 to 64 letters, digits, '-', '_', '.'", name);
	snprintf(dir, size, "%s/soft_mlx5.%u.%s", net_base(), (unsigned int)geteuid(), name);
	if (mkdir(dir, 0700) != 0 && errno != EEXIST) {
		crpc_err("cannot create %s: %s", dir, strerror(errno));
		return errno == EROFS || errno == EPERM ? EACCES : errno;
	}
	/* The parent is writable by all: whoever made the folder must be us. */
	if (lstat(dir, &st) != 0)
		return errno == ENOENT ? EAGAIN : EACCES;
	if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 077) != 0)
		return crpc_fail(EACCES,
			"%s is not a folder of ours alone (owner %u, mode %o): remove it", dir,
			(unsigned int)st.st_uid, (unsigned int)st.st_mode & 07777);
	return 0;
}

/* A file of @size bytes whose blocks exist: a full /dev/shm must fail here, not by a signal. */
static int
file_reserve(int fd, size_t size)
{
	int rc;

	do
		rc = posix_fallocate(fd, 0, (off_t)size);
	while (rc == EINTR);
	if (rc == ENOSPC)
		crpc_err("%s is full, %zu more bytes are needed: remove files there or enlarge it",
			net_base(), size);
	else if (rc != 0)
		crpc_err("cannot reserve %zu bytes in %s: %s", size, net_base(), strerror(rc));
	return rc == ENOSPC ? ENOMEM : rc;
}

/* Remove the rings of which one end is dead or of an earlier generation. Registry locked. */
static void
rings_sweep(struct sm_wire *w)
{
	DIR *d = opendir(w->dir);
	struct dirent *e;

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL) {
		unsigned int src, sgen, dst, dgen;

		if (sscanf(e->d_name, "r.%u.%u.%u.%u", &src, &sgen, &dst, &dgen) != 4)
			continue;
		if (!sm_wire_alive(w, src, sgen) || !sm_wire_alive(w, dst, dgen))
			unlinkat(dirfd(d), e->d_name, 0);
	}
	closedir(d);
}

/*
 * Remove a net without processes. Under the registry's lock, which a newcomer waits for, to find
 * that the file has no name any more and make another one: so that name goes last.
 */
static void
net_remove_dead(int base, const char *name)
{
	int dir = openat(base, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int fd = dir < 0 ? -1 : openat(dir, "net", O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	struct dirent *e;
	struct stat st;
	DIR *d;

	/* Killed before there was a net: a newcomer makes the folder again. */
	if (dir >= 0 && fd < 0 && errno == ENOENT)
		unlinkat(base, name, AT_REMOVEDIR);
	if (fd < 0 || !lock_byte(fd, F_OFD_SETLK, F_WRLCK, LOCK_REGISTRY, 1) ||
		!lock_byte(fd, F_OFD_GETLK, F_WRLCK, 0, SM_SLOTS) || fstat(fd, &st) != 0 ||
		st.st_nlink == 0 || st.st_uid != geteuid())
		goto out;
	d = fdopendir(dir);
	if (d == NULL)
		goto out;
	while ((e = readdir(d)) != NULL)
		if (strcmp(e->d_name, "net") != 0)
			unlinkat(dirfd(d), e->d_name, 0);
	unlinkat(dirfd(d), "net", 0);
	closedir(d);
	dir = -1;
	unlinkat(base, name, AT_REMOVEDIR);
out:
	if (fd >= 0)
		net_close(fd);
	if (dir >= 0)
		close(dir);
}

/* All dead nets of this user, once in a process. */
static void
nets_sweep(void)
{
	static _Atomic uint32_t swept;
	char prefix[32];
	struct dirent *e;
	DIR *d;

	if (crpc_exchange_acq_rel(&swept, 1) != 0)
		return;
	d = opendir(net_base());
	if (d == NULL)
		return;
	snprintf(prefix, sizeof(prefix), "soft_mlx5.%u.", (unsigned int)geteuid());
	while ((e = readdir(d)) != NULL)
		if (strncmp(e->d_name, prefix, strlen(prefix)) == 0)
			net_remove_dead(dirfd(d), e->d_name);
	closedir(d);
}

int
sm_fd_hide(int fd)
{
	int high = fd;

	if (fd >= 0 && fd <= STDERR_FILENO) {
		high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
		close(fd); /* It succeeds, and leaves errno. */
	}
	return high;
}

/* Open the file `net` with the registry locked, sure that it is still the one in the folder. */
static int
net_open(struct sm_wire *w)
{
	char path[160];
	struct stat st;

	snprintf(path, sizeof(path), "%s/net", w->dir);
	w->fd = sm_fd_hide(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (w->fd < 0)
		return errno == ENOENT ? EAGAIN : errno == EMFILE ? ENOMEM : EACCES;
	if (!lock_byte(w->fd, F_OFD_SETLKW, F_WRLCK, LOCK_REGISTRY, 1) || fstat(w->fd, &st) != 0) {
		int rc = errno;

		crpc_err("cannot lock %s: %s", path, strerror(rc));
		net_close(w->fd);
		return rc;
	}
	if (st.st_nlink == 0) { /* The last one to leave removed it between open and lock. */
		net_close(w->fd);
		return EAGAIN;
	}
	return 0;
}

static int
net_map(struct sm_wire *w)
{
	struct net_file *net;
	struct stat st;
	bool used = !lock_byte(w->fd, F_OFD_GETLK, F_WRLCK, 0, SM_SLOTS);
	int rc;

	if (fstat(w->fd, &st) != 0)
		return errno;
	if ((size_t)st.st_size != sizeof(*net)) {
		if (used && st.st_size != 0)
			goto foreign;
		if (ftruncate(w->fd, 0) != 0)
			return errno;
		rc = file_reserve(w->fd, sizeof(*net));
		if (rc != 0)
			return rc;
	}
	net = mmap(NULL, sizeof(*net), PROT_READ | PROT_WRITE, MAP_SHARED, w->fd, 0);
	if (net == MAP_FAILED)
		return ENOMEM;
	if (crpc_load_acquire(&net->magic) != SM_WIRE_MAGIC || net->version != SM_WIRE_VERSION ||
		net->slots != SM_SLOTS || net->ring_bytes != SM_RING_BYTES) {
		if (used) {
			munmap(net, sizeof(*net));
			goto foreign;
		}
		memset((void *)net, 0, sizeof(*net));
		net->version = SM_WIRE_VERSION;
		net->slots = SM_SLOTS;
		net->ring_bytes = SM_RING_BYTES;
		crpc_store_release(&net->magic, SM_WIRE_MAGIC);
	}
	w->net = net;
	return 0;
foreign:
	crpc_err("%s/net is in use by another version (ours is %u): choose another net or end its "
		 "programs", w->dir, SM_WIRE_VERSION);
	return EPROTO;
}

static int
slot_claim(struct sm_wire *w)
{
	for (uint32_t n = 0; n < SM_SLOTS; n++) {
		uint32_t i = (w->net->next + n) % SM_SLOTS;
		struct net_slot *s = &w->net->slot[i];

		if (!lock_byte(w->fd, F_OFD_SETLK, F_WRLCK, i, 1))
			continue;
		w->slot = i;
		w->gen = crpc_load_relaxed(&s->last) + 1;
		if (w->gen == 0)
			w->gen = 1;
		crpc_store_relaxed(&s->gen, 0);
		for (uint32_t k = 0; k < SM_SLOTS / 64; k++)
			crpc_store_relaxed(&s->from[k], 0);
		s->pid = (uint32_t)getpid();
		crpc_store_relaxed(&s->last, w->gen);
		/* G0: the cleared set comes before; pairs with G1 in sm_wire_gen(). */
		crpc_store_release(&s->gen, w->gen);
		w->net->next = (i + 1) % SM_SLOTS;
		return 0;
	}
	return crpc_fail(ENOSPC,
		"all %d slots of %s are held by living contexts: end some or use another net",
		SM_SLOTS, w->dir);
}

static int
wire_try_open(struct sm_wire *w, const char *name)
{
	int rc = dir_make(name, w->dir, sizeof(w->dir));

	if (rc == 0)
		rc = net_open(w);
	if (rc != 0)
		return rc;
	rc = net_map(w);
	if (rc == 0) {
		rc = slot_claim(w);
		if (rc == 0)
			rings_sweep(w);
		else
			munmap(w->net, sizeof(*w->net));
	}
	if (rc != 0)
		net_close(w->fd);
	else
		lock_byte(w->fd, F_OFD_SETLK, F_UNLCK, LOCK_REGISTRY, 1);
	return rc;
}

int
sm_wire_open(const char *name, struct sm_wire **wire, uint32_t *slot)
{
	struct sm_wire *w = calloc(1, sizeof(*w));
	int rc = ENOMEM;

	if (w == NULL)
		return rc;
	nets_sweep();
	/*
	 * EAGAIN: the last one was just leaving. Each turn somebody made progress, but be bounded.
	 */
	for (int i = 0; i < 1000; i++) {
		rc = wire_try_open(w, name);
		if (rc != EAGAIN)
			break;
	}
	if (rc != 0) {
		free(w);
		return rc == EAGAIN ? EACCES : rc;
	}
	*wire = w;
	*slot = w->slot;
	return 0;
}

void
sm_wire_close(struct sm_wire *w)
{
	if (w->fd < 0) { /* Vanished, or a child: the place may be another one's. */
		munmap(w->net, sizeof(*w->net));
		free(w);
		return;
	}
	lock_byte(w->fd, F_OFD_SETLKW, F_WRLCK, LOCK_REGISTRY, 1);
	crpc_store_release(&w->net->slot[w->slot].gen, 0);
	rings_sweep(w);
	munmap(w->net, sizeof(*w->net));
	net_close(w->fd);
	net_remove_dead(AT_FDCWD, w->dir); /* If we were the last. */
	free(w);
}

void
sm_wire_vanish(struct sm_wire *w)
{
	/* What the kernel does for a process that dies; the mapping alone would keep the lock. */
	lock_byte(w->fd, F_OFD_SETLK, F_UNLCK, w->slot, 1);
	close(w->fd);
	w->fd = -1;
}

void
sm_wire_fork_child(struct sm_wire *w)
{
	/* The lock belongs to the open file, which the parent still has: closing drops nothing. */
	close(w->fd);
	w->fd = -1;
	sm_wire_close(w);
}

uint32_t
sm_wire_gen(struct sm_wire *w, uint32_t slot)
{
	/* G1 pairs with G0 in slot_claim(). */
	return crpc_load_acquire(&w->net->slot[slot].gen);
}

bool
sm_wire_alive(struct sm_wire *w, uint32_t slot, uint32_t gen)
{
	if (slot >= SM_SLOTS || gen == 0 || sm_wire_gen(w, slot) != gen)
		return false;
	/* Our own lock is invisible to our own question. */
	return slot == w->slot || !lock_byte(w->fd, F_OFD_GETLK, F_WRLCK, slot, 1);
}

static void
ring_path(const struct sm_wire *w, char *path, size_t size, const uint32_t id[4])
{
	snprintf(path, size, "%s/r.%u.%u.%u.%u", w->dir, id[0], id[1], id[2], id[3]);
}

/* @room: where, NULL: anywhere. */
static struct sm_ring *
ring_map(int fd, void *room)
{
	void *p = mmap(room, sizeof(struct sm_ring), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_POPULATE | (room != NULL ? MAP_FIXED : 0), fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

struct sm_ring *
sm_wire_ring_local(uint64_t cookie)
{
	struct sm_ring *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (r == MAP_FAILED)
		return NULL;
	r->cookie = cookie;
	return r;
}

int
sm_wire_ring_create(
	struct sm_wire *w, uint32_t dst, uint32_t gen, uint64_t cookie, struct sm_ring **ring)
{
	uint32_t id[4] = {w->slot, w->gen, dst, gen};
	struct net_slot *s = &w->net->slot[dst];
	struct sm_ring *r;
	char path[192];
	int fd, rc;

	ring_path(w, path, sizeof(path), id);
	fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		rc = errno;
		crpc_err("cannot create %s: %s", path, strerror(rc));
		return rc;
	}
	rc = file_reserve(fd, sizeof(*r));
	r = rc == 0 ? ring_map(fd, NULL) : NULL;
	close(fd);
	if (r == NULL) {
		unlink(path);
		return rc != 0 ? rc : ENOMEM;
	}
	r->magic = SM_WIRE_MAGIC;
	r->version = SM_WIRE_VERSION;
	r->bytes = SM_RING_BYTES;
	memcpy(r->id, id, sizeof(r->id));
	r->cookie = cookie;
	crpc_fetch_or_acq_rel(&s->from[w->slot / 64], UINT64_C(1) << w->slot % 64);
	/* R0: the ring and the bit come before; pairs with R1 in receive_pass(). */
	atomic_fetch_add_explicit(&s->rings, 1, memory_order_release);
	*ring = r;
	return 0;
}

int
sm_wire_room_keep(struct sm_wire *w, uint32_t slot)
{
	void *p;

	if (w->room[slot] != NULL)
		return 0;
	p = mmap(NULL, sizeof(struct sm_ring), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return ENOMEM;
	w->room[slot] = p;
	return 0;
}

void
sm_wire_room_drop(struct sm_wire *w, uint32_t slot)
{
	if (w->room[slot] != NULL)
		munmap(w->room[slot], sizeof(struct sm_ring));
	w->room[slot] = NULL;
}

const _Atomic uint32_t *
sm_wire_rings(struct sm_wire *w)
{
	return &w->net->slot[w->slot].rings;
}

/*
 * Map the ring from (src, gen). Its file is of no more use to anybody then. NULL and @again: the
 * process is short of descriptors or memory now, and its sender would wait for ever for an answer.
 */
static struct sm_ring *
ring_attach(struct sm_wire *w, uint32_t src, uint32_t gen, bool *again)
{
	uint32_t id[4] = {src, gen, w->slot, w->gen};
	struct sm_ring *r = NULL;
	struct stat st;
	char path[192];
	int fd;

	ring_path(w, path, sizeof(path), id);
	fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0) { /* ENOENT: made for an earlier owner of our slot. */
		*again = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
		return NULL;
	}
	if (fstat(fd, &st) == 0 && (size_t)st.st_size == sizeof(*r)) {
		void *room = w->room[src];

		/* Once: after a failure something else may be mapped there. */
		w->room[src] = NULL;
		r = ring_map(fd, room);
		*again = r == NULL;
	}
	close(fd);
	if (*again)
		return NULL;
	unlink(path);
	if (r == NULL)
		return NULL;
	if (r->magic != SM_WIRE_MAGIC || r->version != SM_WIRE_VERSION ||
		r->bytes != SM_RING_BYTES || memcmp(r->id, id, sizeof(r->id)) != 0) {
		munmap(r, sizeof(*r));
		return NULL;
	}
	return r;
}

struct sm_ring *
sm_wire_ring_take(struct sm_wire *w, uint32_t *src, uint32_t *gen)
{
	struct net_slot *s = &w->net->slot[w->slot];

	for (uint32_t k = 0; k < SM_SLOTS / 64; k++) {
		uint64_t bits = crpc_load_acquire(&s->from[k]);

		while (bits != 0) {
			uint32_t b = (uint32_t)__builtin_ctzll(bits);
			struct sm_ring *r;
			bool again = false;

			bits &= bits - 1;
			crpc_fetch_and_acq_rel(&s->from[k], ~(UINT64_C(1) << b));
			*src = k * 64 + b;
			*gen = sm_wire_gen(w, *src);
			r = *gen == 0 ? NULL : ring_attach(w, *src, *gen, &again);
			if (r != NULL)
				return r;
			if (again)
				crpc_fetch_or_acq_rel(&s->from[k], UINT64_C(1) << b);
		}
	}
	return NULL;
}

void
sm_wire_ring_free(struct sm_ring *ring)
{
	munmap(ring, sizeof(*ring));
}
