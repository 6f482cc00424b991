/* SPDX-License-Identifier: BSD-3-Clause */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "record.h"

/* The counter that loops read starts at another time in each process; this one does not. */
static uint64_t
shared_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static size_t
file_size(uint64_t ops)
{
	return sizeof(struct app_history_head) + ops * sizeof(struct app_history_op);
}

int
kv_records_open(struct kv_records *r, const char *path, uint64_t max, uint32_t keys)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), rc = 0;
	void *mem = MAP_FAILED;

	*r = (struct kv_records){0};
	if (fd < 0)
		return -errno;
	/* A run that is alive may have it mapped. */
	if (flock(fd, LOCK_EX | LOCK_NB) != 0 || ftruncate(fd, 0) != 0) {
		rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
		close(fd);
		return rc;
	}
	/* Room first: a disk that is full while it runs would be a SIGBUS. */
	rc = -posix_fallocate(fd, 0, (off_t)file_size(max));
	if (rc == 0) {
		mem = mmap(NULL, file_size(max), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_POPULATE, fd, 0);
		if (mem == MAP_FAILED)
			rc = -errno;
	}
	if (rc != 0) {
		close(fd);
		unlink(path);
		return rc;
	}
	*r = (struct kv_records){.head = mem, .op = (void *)((uint8_t *)mem + sizeof(*r->head)),
		.max = max, .keys = keys, .fd = fd};
	*r->head = (struct app_history_head){.magic = APP_HISTORY_MAGIC,
		.version = APP_HISTORY_VERSION,
		.op_size = sizeof(struct app_history_op)};
	return 0;
}

uint64_t
kv_records_close(struct kv_records *r)
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
	*r = (struct kv_records){0};
	return lost;
}

uint64_t
kv_records_call(struct kv_records *r, const struct app_history_op *op)
{
	uint64_t number = r->head->ops;

	if (op->key >= r->keys)
		return KV_NO_RECORD;
	if (number == r->max) {
		r->head->lost++;
		return KV_NO_RECORD;
	}
	r->op[number] = *op;
	r->op[number].call = shared_ns();
	r->head->ops++;
	return number;
}

void
kv_records_undo(struct kv_records *r, uint64_t number)
{
	if (number != KV_NO_RECORD)
		r->head->ops--;
}

/* What an answer says about an operation of a kind. */
static enum app_history_state
state_of(const struct app_history_op *op, uint8_t status)
{
	switch (status) {
	case KV_OK:
		return APP_HISTORY_OK;
	case KV_NOT_FOUND:
		return op->kind == APP_HISTORY_CAS ? APP_HISTORY_FAILED : APP_HISTORY_NONE;
	case KV_MISMATCH:
		return APP_HISTORY_FAILED;
	case KV_NO_SPACE:
		return APP_HISTORY_REFUSED;
	default:
		return APP_HISTORY_OPEN;
	}
}

void
kv_records_refuse(struct kv_records *r, uint64_t number)
{
	if (number == KV_NO_RECORD)
		return;
	r->op[number].ret = shared_ns();
	r->op[number].state = APP_HISTORY_REFUSED;
}

void
kv_records_answer(
	struct kv_records *r, uint64_t number, const struct kv_resp_hdr *hdr, uint64_t found)
{
	struct app_history_op *op;

	if (number == KV_NO_RECORD)
		return;
	op = &r->op[number];
	op->ret = shared_ns();
	op->found = found;
	op->state = (uint8_t)state_of(op, hdr->status);
}
