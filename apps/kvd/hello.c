/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app_fail.h"
#include "hello.h"

/* Takes as long wherever they differ. */
static bool
same_secret(const uint8_t *a, const uint8_t *b)
{
	uint32_t diff = 0;

	for (uint32_t i = 0; i < KVD_SECRET_MAX; i++)
		diff |= (uint32_t)(a[i] ^ b[i]);
	return diff == 0;
}

enum kvd_hello_is
kvd_hello_check(const struct kvd_hello *mine, const struct kvd_hello *theirs, uint32_t from,
	uint32_t to, char why[256])
{
	if (theirs->magic != KVD_HELLO_MAGIC) {
		snprintf(why, 256, "it is no kvd");
		return KVD_HELLO_STRANGE;
	}
	if (theirs->version != KVD_HELLO_VERSION) {
		snprintf(why, 256,
			"expected version %u of the exchange between ranks, found %u; "
			"start the same kvd on all hosts",
			KVD_HELLO_VERSION, theirs->version);
		return KVD_HELLO_OTHER;
	}
	if (theirs->ranks != mine->ranks || theirs->daemons != mine->daemons ||
		theirs->key_size != mine->key_size || theirs->value_size != mine->value_size ||
		theirs->keys != mine->keys) {
		snprintf(why, 256,
			"expected %u ranks, --daemons %u, --key-size %u, --value-size %u, "
			"--keys %" PRIu64 ", found %u, %u, %u, %u, %" PRIu64
			"; give all ranks the same",
			mine->ranks, mine->daemons, mine->key_size, mine->value_size, mine->keys,
			theirs->ranks, theirs->daemons, theirs->key_size, theirs->value_size,
			theirs->keys);
		return KVD_HELLO_OTHER;
	}
	if (!same_secret(mine->secret, theirs->secret)) {
		snprintf(why, 256, "it has another --secret-file, or none");
		return KVD_HELLO_STRANGE;
	}
	if (theirs->rank < from || theirs->rank >= to) {
		snprintf(why, 256,
			"expected a rank from %u to %u, found %u; give all ranks the same "
			"--hosts",
			from, to - 1, theirs->rank);
		return KVD_HELLO_OTHER;
	}
	return KVD_HELLO_GOOD;
}

int
kvd_secret_read(const char *path, uint8_t secret[KVD_SECRET_MAX])
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint8_t text[KVD_SECRET_MAX + 2];
	struct stat st;
	ssize_t len;

	if (fd < 0 || fstat(fd, &st) != 0) {
		if (fd >= 0)
			close(fd);
		return app_fail("--secret-file: %s cannot be read: %s", path, strerror(errno));
	}
	len = read(fd, text, sizeof(text));
	close(fd);
	if (len > 0 && text[len - 1] == '\n')
		len--;
	if (len < KVD_SECRET_MIN || len > KVD_SECRET_MAX)
		return app_fail("--secret-file: %s: expected %d to %d bytes, found %s", path,
			KVD_SECRET_MIN, KVD_SECRET_MAX, len < KVD_SECRET_MIN ? "fewer" : "more");
	if ((st.st_mode & 077) != 0)
		return app_fail("--secret-file: %s: expected mode 0600, found %04o: other "
				     "users can read it; chmod 600 it",
			path, st.st_mode & 07777);
	memset(secret, 0, KVD_SECRET_MAX);
	memcpy(secret, text, (size_t)len);
	return 0;
}
