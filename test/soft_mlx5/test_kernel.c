/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The parts of the kernel side that need no preload: the handle table gives unique handles,
 * refuses foreign ones and reuses late; the device tree is what programs look for, is made again
 * if damaged, never followed into a foreign place; the memory map is read right.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "object.h"
#include "sysfs.h"
#include "uverbs.h"

/* ---- handles ---- */

#define OBJS 1000

TEST(handles_are_unique_and_typed)
{
	static struct uv_obj obj[OBJS];
	struct uv_objs objs = {0};
	uint32_t i, n;

	assert_null(uv_objs_get(&objs, 0, UV_PD));
	assert_null(uv_objs_get(&objs, 1, UV_PD));
	for (i = 0; i < OBJS; i++) {
		assert_int_equal(uv_objs_add(&objs, &obj[i], i % 2 ? UV_MR : UV_CQ), 0);
		assert_int_not_equal(obj[i].handle, 0);
	}
	for (i = 0; i < OBJS; i++) {
		assert_ptr_equal(uv_objs_get(&objs, obj[i].handle, i % 2 ? UV_MR : UV_CQ), &obj[i]);
		assert_null(uv_objs_get(&objs, obj[i].handle, i % 2 ? UV_CQ : UV_MR));
	}
	assert_null(uv_objs_get(&objs, UINT32_MAX, UV_MR));
	assert_null(uv_objs_get(&objs, objs.size, UV_MR));
	for (i = 1, n = 0; uv_objs_at_or_after(&objs, i) != NULL; n++)
		i = uv_objs_at_or_after(&objs, i)->handle + 1;
	assert_int_equal(n, OBJS);
	for (i = 0; i < OBJS; i++)
		uv_objs_del(&objs, &obj[i]);
	assert_null(uv_objs_at_or_after(&objs, 0));
	free(objs.slot);
}

/* A program that uses a handle after destroy should meet ENOENT, not the next object. */
TEST(handles_come_back_late)
{
	struct uv_objs objs = {0};
	struct uv_obj keep, obj;
	uint32_t first, i;

	assert_int_equal(uv_objs_add(&objs, &keep, UV_PD), 0);
	assert_int_equal(uv_objs_add(&objs, &obj, UV_PD), 0);
	first = obj.handle;
	for (i = 0; i < objs.size / 2; i++) {
		uv_objs_del(&objs, &obj);
		assert_null(uv_objs_get(&objs, obj.handle, UV_PD));
		assert_int_equal(uv_objs_add(&objs, &obj, UV_PD), 0);
		assert_int_not_equal(obj.handle, first);
		assert_int_not_equal(obj.handle, keep.handle);
	}
	uv_objs_del(&objs, &obj);
	uv_objs_del(&objs, &keep);
	free(objs.slot);
}

/* ---- the device tree ---- */

static char base[] = "/tmp/test_soft_mlx5_XXXXXX";

static int
make_base(void **state)
{
	strcpy(base, "/tmp/test_soft_mlx5_XXXXXX");
	return mkdtemp(base) != NULL ? 0 : -1;
}

static int
remove_base(void **state)
{
	char cmd[PATH_MAX];

	snprintf(cmd, sizeof(cmd), "rm -rf %s", base);
	return system(cmd);
}

static void
expect_text(const char *root, const char *name, const char *want)
{
	char path[PATH_MAX], text[256];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	n = read(fd, text, sizeof(text) - 1);
	assert_true(n >= 0);
	text[n] = '\0';
	close(fd);
	assert_string_equal(text, want);
}

static void
expect_tree(const char *root)
{
	static const char *const texts[][2] = {
		{"class/infiniband_verbs/abi_version", "6\n"},
		{"class/infiniband_verbs/uverbs0/ibdev", "mlx5_soft0\n"},
		{"class/infiniband_verbs/uverbs0/dev", "231:192\n"},
		{"class/infiniband/mlx5_soft0/device/vendor", "0x15b3\n"},
		{"class/infiniband/mlx5_soft0/ports/1/state", "4: ACTIVE\n"},
		{"class/infiniband/mlx5_soft0/ports/1/gids/0",
			"fe80:0000:0000:0000:0200:00ff:fe00:0100\n"},
		{"class/infiniband/mlx5_soft0/ports/1/gids/7",
			"0000:0000:0000:0000:0000:0000:0000:0000\n"},
		{"class/infiniband_verbs/uverbs0/device/modalias",
			"pci:v000015B3d00001017sv000015B3sd00000008bc02sc07i00\n"},
	};
	char path[PATH_MAX], real[PATH_MAX];

	for (size_t i = 0; i < CRPC_DIM(texts); i++)
		expect_text(root, texts[i][0], texts[i][1]);
	/* Two levels above the device lies its PCI function. */
	snprintf(path, sizeof(path), "%s/class/infiniband/mlx5_soft0/../../device", root);
	assert_non_null(realpath(path, real));
}

TEST_FIXTURE(tree_is_made_once_and_made_good, make_base, remove_base)
{
	char root[PATH_MAX], again[PATH_MAX], path[PATH_MAX + 64];
	struct stat before, after;

	assert_int_equal(sm_sysfs_make(base, root, sizeof(root)), 0);
	expect_tree(root);
	snprintf(path, sizeof(path), "%s/class/infiniband_verbs/abi_version", root);
	assert_int_equal(stat(path, &before), 0);
	assert_int_equal(sm_sysfs_make(base, again, sizeof(again)), 0);
	assert_string_equal(root, again);
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(before.st_ino, after.st_ino); /* not made again */

	snprintf(path, sizeof(path), "%s/class/infiniband/mlx5_soft0", root);
	assert_int_equal(unlink(path), 0); /* something was removed */
	assert_int_equal(sm_sysfs_make(base, root, sizeof(root)), 0);
	expect_tree(root);
	snprintf(path, sizeof(path), "%s/class/infiniband_verbs/abi_version", root);
	assert_int_equal(truncate(path, 0), 0); /* the disk was full */
	assert_int_equal(sm_sysfs_make(base, root, sizeof(root)), 0);
	expect_tree(root);
}

TEST_FIXTURE(tree_is_made_by_many_at_once, make_base, remove_base)
{
	char root[PATH_MAX];
	int i, status;
	pid_t pid[8];

	for (i = 0; i < 8; i++) {
		pid[i] = fork();
		assert_true(pid[i] >= 0);
		if (pid[i] == 0)
			_exit(sm_sysfs_make(base, root, sizeof(root)));
	}
	for (i = 0; i < 8; i++) {
		assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(sm_sysfs_make(base, root, sizeof(root)), 0);
	expect_tree(root);
}

TEST_FIXTURE(foreign_places_are_refused, make_base, remove_base)
{
	char root[PATH_MAX], path[PATH_MAX + 64], small[16];

	snprintf(path, sizeof(path), "%s/soft_mlx5-%u", base, (unsigned int)geteuid());
	assert_int_equal(symlink("/tmp", path), 0); /* somebody leads us elsewhere */
	assert_int_not_equal(sm_sysfs_make(base, root, sizeof(root)), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, 0777), 0); /* others may write there */
	assert_int_equal(sm_sysfs_make(base, root, sizeof(root)), EPERM);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(sm_sysfs_make(base, small, sizeof(small)), ENAMETOOLONG);
	assert_int_equal(sm_sysfs_make("/nonexistent", root, sizeof(root)), ENOENT);
}

/* ---- memory ---- */

TEST(holes_in_memory_are_found)
{
	const uint64_t page = 4096;
	char *map = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
			0);
	uint64_t at = (uintptr_t)map, i;

	assert_true(map != MAP_FAILED);
	/* Many mappings in a row, so that the range spans lines and reads of the map. */
	for (i = 0; i < 64; i += 2)
		assert_int_equal(mprotect(map + i * page, page, PROT_READ), 0);
	assert_int_equal(uv_check_range(at, 64 * page, false), 0);
	assert_int_equal(uv_check_range(at + 1, 64 * page - 2, false), 0);
	assert_int_equal(uv_check_range(at, 64 * page, true), EFAULT);
	assert_int_equal(uv_check_range(at + page, page, true), 0);
	assert_int_equal(uv_check_range(at + page, page + 1, true), EFAULT);
	assert_int_equal(munmap(map + 40 * page, page), 0);
	assert_int_equal(uv_check_range(at, 40 * page, false), 0);
	assert_int_equal(uv_check_range(at, 40 * page + 1, false), EFAULT);
	assert_int_equal(mprotect(map + 20 * page, page, PROT_NONE), 0);
	assert_int_equal(uv_check_range(at, 40 * page, false), EFAULT);
	assert_int_equal(uv_check_range(at, 0, false), EFAULT);
	assert_int_equal(uv_check_range(UINT64_MAX - 10, 100, false), EFAULT);
	assert_int_equal(uv_check_range(0, 100, false), EFAULT);
	munmap(map, 64 * page);
}

TEST_MAIN(NULL, NULL)
