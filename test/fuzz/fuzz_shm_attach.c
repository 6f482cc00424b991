/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Attaching to, and taking over, a file that anybody may have written: whatever it holds, attach
 * either refuses it or maps exactly the bytes that are there, and create never destroys a file that
 * is no segment.
 *
 * Input: a byte of flags, then the file.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crpc_shm.h"
#include "fuzz.h"
#include "fuzz_dir.h"

#define KIND CRPC_SHM_KIND('F', 'U', 'Z', 'Z')

enum {
	LOCKED = 1,     /* Somebody holds the owner's lock. */
	WHOLE = 2,      /* The file ends at a page's end. */
	TRUE_SIZE = 4,  /* The header has the file's size, so that what is behind is reached. */
	TAKE_OVER = 8,  /* Then a new owner comes. */
};

static char path[128];

static void
set_up(void)
{
	fuzz_dir_make("fuzz_attach.");
	snprintf(path, sizeof(path), "%s/crpc.f", dir);
}

/* The file as the input says; its descriptor holds the owner's lock if it is to be locked. */
static int
make_file(uint8_t flags, const uint8_t *data, size_t size)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	uint64_t total = size;

	fuzz_check(fd >= 0);
	fuzz_check(pwrite(fd, data, size, 0) == (ssize_t)size);
	if (flags & WHOLE)
		total = crpc_align_up(total, 4096);
	fuzz_check(ftruncate(fd, (off_t)total) == 0);
	if (flags & TRUE_SIZE && total >= sizeof(struct crpc_shm_header))
		fuzz_check(pwrite(fd, &total, sizeof(total),
				   offsetof(struct crpc_shm_header, total_size)) == sizeof(total));
	if (flags & LOCKED)
		fuzz_check(fcntl(fd, F_OFD_SETLK, &lock) == 0);
	return fd;
}

static void
attach(int fd, uint8_t flags)
{
	struct crpc_shm *seg = crpc_shm_attach(dir, "f", KIND, 1, 0);
	const struct crpc_shm_header *h;
	const uint8_t *last;
	struct stat st;

	if (seg == NULL) {
		fuzz_check(errno == ECONNREFUSED || errno == EAGAIN || errno == EPROTO);
		return;
	}
	h = crpc_shm_header(seg);
	fuzz_check(flags & LOCKED);
	fuzz_check(fstat(fd, &st) == 0 && crpc_shm_size(seg) == (uint64_t)st.st_size);
	fuzz_check(h->magic == CRPC_SHM_MAGIC && h->kind == KIND && h->kind_version == 1);
	fuzz_check(h->total_size == crpc_shm_size(seg));
	last = crpc_shm_ptr(seg, crpc_shm_size(seg) - 1, 1);
	fuzz_check(last != NULL && (*last | 1) != 0);
	fuzz_check(crpc_shm_ptr(seg, crpc_shm_size(seg), 1) == NULL);
	fuzz_check(crpc_shm_owner_alive(seg));
	crpc_shm_detach(seg);
}

static void
take_over(int fd, uint8_t flags)
{
	const struct crpc_shm_conf conf = {
			.name = "f", .dir = dir, .size = 4096, .kind = KIND, .kind_version = 1};
	struct crpc_shm *seg = crpc_shm_create(&conf);
	struct stat st;

	if (flags & LOCKED)
		fuzz_check(seg == NULL && (errno == EADDRINUSE || errno == EEXIST));
	if (seg == NULL) {
		fuzz_check(fstat(fd, &st) == 0 && st.st_nlink == 1);
		return;
	}
	fuzz_check(fstat(fd, &st) == 0 && st.st_nlink == 0);
	crpc_shm_free(seg);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t flags;
	int fd;

	if (size == 0)
		return 0;
	if (dir[0] == '\0')
		set_up();
	flags = data[0];
	fd = make_file(flags, data + 1, size - 1);
	attach(fd, flags);
	if (flags & TAKE_OVER)
		take_over(fd, flags);
	close(fd);
	return 0;
}
