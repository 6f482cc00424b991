/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app_records.h"
#include "crpc_file.h"

static size_t
file_size(uint64_t ops)
{
	return sizeof(struct app_history_head) + ops * sizeof(struct app_history_op);
}

/* A file that no other user can read, cut or map; another user's file makes place for it. */
static int
file_make(const char *path)
{
	bool is_file = true;
	struct stat st;
	int fd;

	for (int tries = 0; tries < 2 && is_file; tries++) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
		if (fd < 0)
			return -errno;
		if (__crpc_file_is_private(fd) && fchmod(fd, 0600) == 0)
			return fd;
		is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && unlink(path) == 0;
		close(fd);
	}
	return -EPERM;
}

int
app_records_open(struct app_records *r, const char *path, uint64_t max, uint32_t keys,
	uint64_t (*now_ns)(void))
{
	int fd = file_make(path), rc = 0;
	void *mem = MAP_FAILED;

	*r = (struct app_records){0};
	if (fd < 0)
		return fd;
	/* A run that is alive may have it mapped. */
	if (flock(fd, LOCK_EX | LOCK_NB) != 0 || ftruncate(fd, 0) != 0) {
		rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
		close(fd);
		return rc;
	}
	/* Room first: a disk that is full while it runs would be a SIGBUS. */
	rc = -posix_fallocate(fd, 0, (off_t)file_size(max));
	if (rc == 0) {
		mem = mmap(NULL, file_size(max), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			fd, 0);
		if (mem == MAP_FAILED)
			rc = -errno;
	}
	if (rc != 0) {
		close(fd);
		unlink(path);
		return rc;
	}
	*r = (struct app_records){.head = mem,
		.op = (void *)((uint8_t *)mem + sizeof(*r->head)),
		.max = max,
		.keys = keys,
		.fd = fd,
		.now_ns = now_ns};
	*r->head = (struct app_history_head){.magic = APP_HISTORY_MAGIC,
		.version = APP_HISTORY_VERSION,
		.op_size = sizeof(struct app_history_op)};
	return 0;
}

uint64_t
app_records_close(struct app_records *r)
{
	uint64_t lost;
	size_t size;

	if (r->head == NULL)
		return 0;
	lost = r->head->lost;
	size = file_size(r->head->ops);
	munmap(r->head, file_size(r->max));
	/* The rest of the file is not needed; if it cannot be given back it does no harm. */
	(void)!ftruncate(r->fd, (off_t)size);
	close(r->fd);
	*r = (struct app_records){0};
	return lost;
}

uint64_t
app_records_call(struct app_records *r, const struct app_history_op *op)
{
	uint64_t number = r->head->ops;

	if (op->key >= r->keys)
		return APP_NO_RECORD;
	if (number == r->max) {
		r->head->lost++;
		return APP_NO_ROOM;
	}
	r->op[number] = *op;
	r->op[number].call = r->now_ns();
	r->head->ops++;
	return number;
}

void
app_records_undo(struct app_records *r, uint64_t number)
{
	if (number == APP_NO_ROOM)
		r->head->lost--;
	else if (number != APP_NO_RECORD)
		r->head->ops--;
}

/* What an answer says about an operation of a kind. */
static enum app_history_state
state_of(const struct app_history_op *op, uint8_t status)
{
	switch (status) {
	case CRPC_KV_OK:
		return APP_HISTORY_OK;
	case CRPC_KV_NOT_FOUND:
		return op->kind == APP_HISTORY_CAS ? APP_HISTORY_FAILED : APP_HISTORY_NONE;
	case CRPC_KV_MISMATCH:
		return APP_HISTORY_FAILED;
	case CRPC_KV_NO_SPACE:
		return APP_HISTORY_REFUSED;
	default:
		return APP_HISTORY_OPEN;
	}
}

void
app_records_answer(
	struct app_records *r, uint64_t number, const struct kv_resp_hdr *hdr, uint64_t found)
{
	struct app_history_op *op;

	if (number >= APP_NO_ROOM)
		return;
	op = &r->op[number];
	op->ret = r->now_ns();
	op->found = found;
	op->state = hdr == NULL ? APP_HISTORY_REFUSED : (uint8_t)state_of(op, hdr->status);
}
