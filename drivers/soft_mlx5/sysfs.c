/* SPDX-License-Identifier: BSD-3-Clause */
#include "sysfs.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_user_cm.h>

#include "crpc_util.h"
#include "nic.h"
#include "port.h"
#include "say.h"

#define TEXT_MAX 256
#define PCI_DIR	 "devices/pci0000:00/0000:%02x:00.0"

struct walk {
	sm_sysfs_visit visit;
	void *arg;
	bool stopped;
	char dir[128]; /* what entry() puts before the name */
};

static crpc_printf(4, 5) void
entry(struct walk *w, bool link, const char *name, const char *fmt, ...)
{
	char path[TEXT_MAX], text[TEXT_MAX];
	va_list ap;

	if (w->stopped)
		return;
	snprintf(path, sizeof(path), "%s%s", w->dir, name);
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	w->stopped = !w->visit(w->arg, path, text, link);
}

#define file(w, ...) entry(w, false, __VA_ARGS__)
#define link_to(w, ...) entry(w, true, __VA_ARGS__)

static crpc_printf(2, 3) void
in_dir(struct walk *w, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(w->dir, sizeof(w->dir), fmt, ap);
	va_end(ap);
}

/* A GID or GUID as sysfs shows it: groups of four hexadecimal digits. */
static const char *
guid_text(char out[20], uint64_t guid)
{
	snprintf(out, 20, "%04x:%04x:%04x:%04x", (unsigned int)(guid >> 48),
			(unsigned int)(guid >> 32 & 0xffff), (unsigned int)(guid >> 16 & 0xffff),
			(unsigned int)(guid & 0xffff));
	return out;
}

/* The PCI function. Programs find it by realpath() of the class link, two levels up. */
static void
walk_pci(struct walk *w, int n)
{
	in_dir(w, PCI_DIR "/", n + 1);
	file(w, "vendor", "0x%04x\n", SM_VENDOR_ID);
	file(w, "device", "0x%04x\n", SM_PART_ID);
	file(w, "subsystem_vendor", "0x%04x\n", SM_VENDOR_ID);
	file(w, "subsystem_device", "0x0008\n");
	file(w, "class", "0x020700\n");
	file(w, "revision", "0x00\n");
	/* libibverbs chooses the provider by this line. */
	file(w, "modalias", "pci:v%08Xd%08Xsv%08Xsd00000008bc02sc07i00\n", SM_VENDOR_ID, SM_PART_ID,
			SM_VENDOR_ID);
	file(w, "uevent",
			"DRIVER=mlx5_core\nPCI_CLASS=20700\nPCI_ID=%04X:%04X\nPCI_SUBSYS_ID=%04X:"
			"0008\n"
			"PCI_SLOT_NAME=0000:%02x:00.0\n",
			SM_VENDOR_ID, SM_PART_ID, SM_VENDOR_ID, n + 1);
	file(w, "numa_node", "-1\n");
	file(w, "local_cpus", "ffffffff,ffffffff\n");
	file(w, "local_cpulist", "0-63\n");
	file(w, "current_link_speed", "8.0 GT/s PCIe\n");
	file(w, "current_link_width", "16\n");
	file(w, "max_link_speed", "8.0 GT/s PCIe\n");
	file(w, "max_link_width", "16\n");
}

static void
walk_uverbs(struct walk *w, int n)
{
	unsigned int minor_nr = SM_UVERBS_MINOR + (unsigned int)n;

	in_dir(w, "class/infiniband_verbs/");
	if (n == 0)
		file(w, "abi_version", "6\n");
	in_dir(w, "class/infiniband_verbs/uverbs%d", n);
	link_to(w, "", "../../" PCI_DIR "/infiniband_verbs/uverbs%d", n + 1,
			n);

	in_dir(w, PCI_DIR "/infiniband_verbs/uverbs%d/", n + 1, n);
	link_to(w, "device", "../../../0000:%02x:00.0", n + 1);
	file(w, "ibdev", SM_DEVICE_NAME "%d\n", n);
	file(w, "abi_version", "1\n");
	file(w, "dev", "%d:%u\n", SM_UVERBS_MAJOR, minor_nr);
	file(w, "uevent", "MAJOR=%d\nMINOR=%u\nDEVNAME=infiniband/uverbs%d\n", SM_UVERBS_MAJOR,
			minor_nr, n);

	/* The node itself: open() of this path is answered by preload.c. */
	in_dir(w, "dev/infiniband/uverbs%d", n);
	file(w, "", "soft_mlx5\n");
}

static void
walk_port(struct walk *w, int n)
{
	const struct sm_port *port = sm_port((uint32_t)n);
	static const char *const types[] = {
		[IBV_GID_TYPE_IB] = "IB/RoCE v1\n",
		[IBV_GID_TYPE_ROCE_V1] = "IB/RoCE v1\n",
		[IBV_GID_TYPE_ROCE_V2] = "RoCE v2\n",
	};
	char name[32], gid[2][20];
	uint64_t half[2];
	bool used;

	in_dir(w, PCI_DIR "/infiniband/" SM_DEVICE_NAME "%d/ports/1/",
			n + 1, n);
	file(w, "state", "4: ACTIVE\n");
	file(w, "phys_state", "5: LinkUp\n");
	file(w, "link_layer", port->ethernet ? "Ethernet\n" : "InfiniBand\n");
	file(w, "lid", "0x%x\n", port->lid);
	file(w, "lid_mask_count", "0\n");
	file(w, "sm_lid", "0x%x\n", port->ethernet ? 0 : SM_LID);
	file(w, "sm_sl", "0\n");
	file(w, "rate", "100 Gb/sec (4X EDR)\n");
	file(w, "cap_mask", "0x00000000\n");
	for (uint32_t i = 0; i < SM_GIDS; i++) {
		used = i < port->ngids;
		memcpy(half, port->gid[i].raw, sizeof(half));
		for (int h = 0; h < 2; h++)
			guid_text(gid[h], be64toh(half[h]));
		snprintf(name, sizeof(name), "gids/%u", i);
		file(w, name, "%s:%s\n", gid[0], gid[1]);
		/* Without a type libibverbs takes an empty entry for an error. */
		snprintf(name, sizeof(name), "gid_attrs/types/%u", i);
		file(w, name, "%s", types[used ? port->gid[i].type : IBV_GID_TYPE_IB]);
		snprintf(name, sizeof(name), "gid_attrs/ndevs/%u", i);
		file(w, name, "%s%s", used ? port->netdev : "",
				used && port->ethernet ? "\n" : "");
	}
	for (uint32_t i = 0; i < port->npkeys; i++) {
		snprintf(name, sizeof(name), "pkeys/%u", i);
		file(w, name, "0x%04x\n", port->pkey[i]);
	}
}

static void
walk_device(struct walk *w, int n)
{
	char guid[20];

	in_dir(w, "class/infiniband/" SM_DEVICE_NAME "%d", n);
	link_to(w, "", "../../" PCI_DIR "/infiniband/" SM_DEVICE_NAME "%d",
			n + 1, n);

	in_dir(w, PCI_DIR "/infiniband/" SM_DEVICE_NAME "%d/", n + 1, n);
	link_to(w, "device", "../../../0000:%02x:00.0", n + 1);
	file(w, "node_type", "1: CA\n");
	guid_text(guid, SM_NODE_GUID + (uint64_t)n);
	file(w, "node_guid", "%s\n", guid);
	file(w, "sys_image_guid", "%s\n", guid);
	file(w, "node_desc", "soft_mlx5\n");
	file(w, "fw_ver", "%d.%d.%d\n", SM_FW_MAJOR, SM_FW_MINOR, SM_FW_SUB);
	file(w, "hca_type", "MT4119\n");
	file(w, "hw_rev", "0\n");
	file(w, "board_id", "MT_0000000008\n");
}

static void
walk_cm(struct walk *w)
{
	in_dir(w, "class/misc/rdma_cm/");
	file(w, "abi_version", "%d\n", RDMA_USER_CM_ABI_VERSION);
	file(w, "dev", "%d:%d\n", SM_CM_MAJOR, SM_CM_MINOR);
	in_dir(w, "dev/infiniband/rdma_cm");
	file(w, "", "soft_mlx5\n");
}

bool
sm_sysfs_walk(sm_sysfs_visit visit, void *arg)
{
	struct walk w = {.visit = visit, .arg = arg};

	for (int n = 0; n < (int)sm_ports(); n++) {
		walk_pci(&w, n);
		walk_uverbs(&w, n);
		walk_device(&w, n);
		walk_port(&w, n);
	}
	walk_cm(&w);
	return !w.stopped;
}

static bool
visit_hash(void *arg, const char *path, const char *text, bool link)
{
	uint64_t *h = arg;

	*h = sm_hash(sm_hash(sm_hash(*h, path), link ? ">" : "="), text);
	return true;
}

static bool
make_parents(int root, const char *path)
{
	char dir[TEXT_MAX];
	const char *slash = path;

	while ((slash = strchr(slash, '/')) != NULL) {
		snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
		if (mkdirat(root, dir, 0755) != 0 && errno != EEXIST)
			return false;
		slash++;
	}
	return true;
}

/* The entry is there, as it was made. */
static bool
is_made(int root, const char *path, const char *text, bool link)
{
	struct stat st;

	if (fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) != 0)
		return false;
	return link ? S_ISLNK(st.st_mode)
		    : S_ISREG(st.st_mode) && st.st_size == (off_t)strlen(text);
}

static bool
file_write(int root, const char *path, const char *text)
{
	int fd = openat(root, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	size_t len = strlen(text);
	ssize_t n;

	if (fd < 0)
		return false;
	n = write(fd, text, len);
	if (close(fd) != 0 || n < 0)
		return false;
	errno = ENOSPC;
	return (size_t)n == len;
}

/* Under a name of its own first: any number of processes make the same tree. */
static bool
visit_make(void *arg, const char *path, const char *text, bool link)
{
	const int *root = arg;
	unsigned long number;
	char temp[32];

	if (is_made(*root, path, text, link))
		return true;
	if (getrandom(&number, sizeof(number), 0) != sizeof(number))
		return false;
	snprintf(temp, sizeof(temp), "new.%lx", number);
	return (link ? symlinkat(text, *root, temp) == 0 : file_write(*root, temp, text)) &&
		make_parents(*root, path) && renameat(*root, temp, *root, path) == 0;
}

/* A directory in a place where everybody may write: it counts only if it is ours and no other user
 * can put anything there. */
static int
open_private_dir(int at, const char *path, int *fd)
{
	struct stat st;
	int err;

	if (mkdirat(at, path, 0700) != 0 && errno != EEXIST)
		return errno;
	*fd = openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (*fd < 0)
		return errno;
	err = fstat(*fd, &st) != 0 ? errno : 0;
	if (err == 0 && (st.st_uid != geteuid() || (st.st_mode & 0022) != 0))
		err = EPERM;
	if (err != 0)
		close(*fd);
	return err;
}

int
sm_sysfs_make(const char *base, char *root, size_t size)
{
	uint64_t hash = SM_HASH_FIRST;
	char name[32];
	int n, err, user, tree;

	sm_sysfs_walk(visit_hash, &hash);
	snprintf(name, sizeof(name), "sysfs-%016llx", (unsigned long long)hash);
	n = snprintf(root, size, "%s/soft_mlx5-%u", base, (unsigned int)geteuid());
	if (n < 0 || (size_t)n + sizeof(name) + 1 > size)
		return ENAMETOOLONG;
	err = open_private_dir(AT_FDCWD, root, &user);
	if (err != 0)
		return err;
	err = open_private_dir(user, name, &tree);
	close(user);
	if (err != 0)
		return err;
	errno = 0;
	if (!sm_sysfs_walk(visit_make, &tree))
		err = errno != 0 ? errno : EIO;
	close(tree);
	if (err == 0)
		snprintf(root + n, size - (size_t)n, "/%s", name);
	return err;
}

static char tree_root[PATH_MAX / 2];
static bool tree_ok;

static void
make_once(void)
{
	const char *bases[] = {
			getenv("SOFT_MLX5_DIR"), "/dev/shm", getenv("XDG_RUNTIME_DIR"), "/tmp"};
	int saved = errno, err = 0;

	for (size_t i = 0; i < CRPC_DIM(bases) && !tree_ok; i++) {
		if (bases[i] == NULL || bases[i][0] != '/')
			continue;
		err = sm_sysfs_make(bases[i], tree_root, sizeof(tree_root));
		tree_ok = err == 0;
	}
	if (!tree_ok)
		sm_complain("cannot make the device tree in /dev/shm, XDG_RUNTIME_DIR or /tmp: %s; "
			    "set "
			    "SOFT_MLX5_DIR to a directory that can be written",
				strerror(err));
	errno = saved;
}

const char *
sm_sysfs_root(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, make_once);
	return tree_ok ? tree_root : NULL;
}
