/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device class: which drivers there are, which of them takes a device, and the checks of
 * arguments that every driver would otherwise repeat. The datapath does not pass here.
 */
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_conf.h"
#include "crpc_log.h"
#include "crpc_rdma_driver.h"

#define DEFAULT_CQ_DEPTH 4096
#define DEFAULT_SQ_DEPTH 64
#define DEFAULT_RQ_DEPTH 128
#define DEFAULT_UD_SQ    256
#define DEFAULT_UD_RQ    512
#define DEFAULT_DCIS     4
#define DEFAULT_DRAIN_NS UINT64_C(4000000000)
#define FOUND_LEN        256
#define DEVICE_LEN       256

/* In order of registration, those that are asked last at the end. Written by constructors, before
 * main, and only read afterwards. */
static struct crpc_rdma_driver *drivers;
/* The only one that is asked; NULL: all are. */
static const struct crpc_rdma_driver *chosen;

void
crpc_rdma_driver_register(struct crpc_rdma_driver *driver)
{
	struct crpc_rdma_driver **at = &drivers;

	while (*at != NULL && *at != driver && (driver->ops->is_last || !(*at)->ops->is_last))
		at = &(*at)->next;
	if (*at == driver)
		return;
	driver->next = *at;
	*at = driver;
}

int
crpc_rdma_driver_choose(const char *name)
{
	size_t len = name != NULL ? strlen(name) : 0;
	char names[FOUND_LEN] = "";

	for (const struct crpc_rdma_driver *d = drivers; name != NULL && d != NULL; d = d->next) {
		if (strncmp(d->ops->name, name, len) == 0 &&
			(d->ops->name[len] == '\0' || d->ops->name[len] == '_')) {
			chosen = d;
			return 0;
		}
		snprintf(names + strlen(names), sizeof(names) - strlen(names), " %s", d->ops->name);
	}
	if (name != NULL)
		return crpc_fail(-ENOENT, "there is no RDMA driver %.64s; found:%s", name, names);
	chosen = NULL;
	return 0;
}

/* What the drivers see, for the error text: "mlx5_0 mlx5_1", or "no RDMA device". */
static void
found_devices(char *buf, size_t len)
{
	size_t used;

	buf[0] = '\0';
	for (const struct crpc_rdma_driver *d = drivers; d != NULL; d = d->next) {
		used = strlen(buf);
		if (used + 2 >= len || d->ops->list == NULL)
			continue;
		if (used != 0)
			buf[used++] = ' ';
		buf[used] = '\0';
		d->ops->list(buf + used, len - used);
		if (used != 0 && buf[used] == '\0')
			buf[used - 1] = '\0';
	}
	if (buf[0] == '\0')
		snprintf(buf, len, "no RDMA device");
}

/* One KEY=VALUE behind the name of a device. */
static int
device_arg_take(struct crpc_rdma_conf *conf, char *arg)
{
	const struct {
		const char *key;
		unsigned long most;
		uint32_t *field;
	} keys[] = {
		{"port", 255, &conf->port},
		{"gid", CRPC_RDMA_GID_MAX, &conf->gid},
		{"mtu", 4096, &conf->mtu},
		{"sl", 15, &conf->sl},
		{"class", 255, &conf->traffic_class},
		{"flow", 0xfffff, &conf->flow_label},
		{"pkey", 0xffff, &conf->pkey},
	};
	char *value = strchr(arg, '='), *end = NULL;
	unsigned long v = 0;
	size_t k = 0;

	if (value != NULL) {
		*value++ = '\0';
		v = strtoul(value, &end, 0);
	}
	while (k < CRPC_DIM(keys) && strcmp(keys[k].key, arg) != 0)
		k++;
	if (k == CRPC_DIM(keys) || end == NULL || *value < '0' || *value > '9' || *end != '\0' ||
		v > keys[k].most)
		return crpc_fail(-EINVAL,
			"open: '%.32s%s%.32s' behind the device's name is not one of: port=, gid=, "
			"mtu=, sl=, class=, flow=, pkey= and a number in range",
			arg, value != NULL ? "=" : "", value != NULL ? value : "");
	*keys[k].field = keys[k].field == &conf->gid ? CRPC_RDMA_GID(v) : (uint32_t)v;
	return 0;
}

/* Takes "NAME,KEY=VALUE..." apart, in text; conf->device is the name alone then. */
static int
device_take(struct crpc_rdma_conf *conf, char text[DEVICE_LEN])
{
	char *save = NULL, *args;
	int rc = 0;

	if (conf->device == NULL)
		return 0;
	if (snprintf(text, DEVICE_LEN, "%s", conf->device) >= DEVICE_LEN)
		return crpc_fail(-EINVAL, "open: the device name has more than %d characters",
			DEVICE_LEN - 1);
	args = strchr(text, ',');
	if (args != NULL)
		*args++ = '\0';
	else if (text[0] == '\0')
		return crpc_fail(
			-EINVAL, "open: the device name is empty: give one, or NULL for the first");
	conf->device = text[0] != '\0' ? text : NULL;
	for (char *arg = args != NULL ? strtok_r(args, ",", &save) : NULL; rc == 0 && arg != NULL;
		arg = strtok_r(NULL, ",", &save))
		rc = device_arg_take(conf, arg);
	return rc;
}

static int
open_conf_check(struct crpc_rdma_conf *conf)
{
	CRPC_CONF_DEFAULT(conf->port, 1);
	CRPC_CONF_DEFAULT(conf->drain_ns, DEFAULT_DRAIN_NS);
	if (conf->mtu != 0 && !crpc_is_pow2(conf->mtu))
		return crpc_fail(-EINVAL, "open: mtu %u is no power of two", conf->mtu);
	if (crpc_conf_range("port", conf->port, 1, 255) ||
		crpc_conf_range("gid", conf->gid, 0, CRPC_RDMA_GID(CRPC_RDMA_GID_MAX)) ||
		(conf->mtu != 0 && crpc_conf_range("mtu", conf->mtu, 256, 4096)) ||
		crpc_conf_range("sl", conf->sl, 0, 15) ||
		crpc_conf_range("traffic_class", conf->traffic_class, 0, 255) ||
		crpc_conf_range("flow_label", conf->flow_label, 0, 0xfffff) ||
		crpc_conf_range("pkey", conf->pkey, 0, 0xffff))
		return -EINVAL;
	if (CRPC_CONF(conf, cq_depth, DEFAULT_CQ_DEPTH, 1, CRPC_RDMA_CQ_DEPTH_MAX))
		return -EINVAL;
	return CRPC_CONF(conf, dcis, DEFAULT_DCIS, 1, CRPC_RDMA_DCIS_MAX);
}

/* Asks the drivers in turn. Sets *err to 0 if none of them knows the device. */
static struct crpc_rdma *
ask_drivers(const struct crpc_rdma_conf *conf, int *err)
{
	struct crpc_rdma *dev;

	*err = 0;
	for (const struct crpc_rdma_driver *d = drivers; d != NULL; d = d->next) {
		if (chosen != NULL && d != chosen)
			continue;
		errno = 0;
		dev = d->ops->open(conf);
		if (dev != NULL)
			return dev;
		if (errno == ENODEV)
			continue;
		*err = errno != 0 ? errno : EIO;
		/* Another driver may still take what this one does not support. */
		if (*err != ENOTSUP)
			return NULL;
	}
	return NULL;
}

struct crpc_rdma *
crpc_rdma_open(const struct crpc_rdma_conf *conf)
{
	struct crpc_rdma_conf filled;
	char found[FOUND_LEN], device[DEVICE_LEN];
	struct crpc_rdma *dev;
	int err;

	if (conf == NULL)
		return crpc_null(crpc_fail(-EINVAL, "open: conf is NULL"));
	filled = *conf;
	err = device_take(&filled, device);
	if (err == 0)
		err = open_conf_check(&filled);
	if (err != 0)
		return crpc_null(err);
	if (drivers == NULL)
		return crpc_null(crpc_fail(
			-ENODEV, "open: no RDMA driver is linked in: link the drivers whole"));
	dev = ask_drivers(&filled, &err);
	if (dev != NULL)
		return dev;
	if (err == ENOTSUP)
		crpc_err("open: RDMA device %.64s is not one that %s takes",
			filled.device != NULL ? filled.device : "(any)",
			chosen != NULL ? chosen->ops->name : "a driver");
	if (err != 0)
		return crpc_null(-err);
	found_devices(found, sizeof(found));
	if (filled.device != NULL)
		crpc_err("open: there is no RDMA device %.64s; found: %s", filled.device, found);
	else
		crpc_err("open: no RDMA device that can be used; found: %s", found);
	return crpc_null(-ENODEV);
}

void
crpc_rdma_close(struct crpc_rdma *dev)
{
	if (dev != NULL)
		dev->ops->close(dev);
}

void
crpc_rdma_hand_over(struct crpc_rdma *dev)
{
	dev->owner = (struct crpc_owner){0};
}

void
crpc_rdma_info_get(const struct crpc_rdma *dev, struct crpc_rdma_info *info)
{
	memset(info, 0, sizeof(*info));
	dev->ops->info_get(dev, info);
	snprintf(info->driver, sizeof(info->driver), "%s", dev->ops->name);
}

void
crpc_rdma_stats_get(const struct crpc_rdma *dev, struct crpc_rdma_stats *stats)
{
	*stats = dev->stats;
}

int
crpc_rdma_card_get(const struct crpc_rdma *dev, struct crpc_rdma_card *card)
{
	return dev->ops->card_get == NULL ? -EOPNOTSUPP : dev->ops->card_get(dev, card);
}

int
crpc_rdma_dump(const struct crpc_rdma *dev, FILE *out)
{
	if (dev->ops->dump == NULL)
		return -EOPNOTSUPP;
	dev->ops->dump(dev, out);
	return ferror(out) ? -EIO : 0;
}

int
crpc_rdma_mr_reg(struct crpc_rdma *dev, void *addr, uint64_t len, struct crpc_rdma_mr *mr)
{
	return crpc_rdma_mr_reg_flags(dev, addr, len, 0, mr);
}

int
crpc_rdma_mr_reg_flags(struct crpc_rdma *dev, void *addr, uint64_t len, uint32_t flags,
	struct crpc_rdma_mr *mr)
{
	if (dev == NULL || mr == NULL || addr == NULL || len == 0 ||
		(uintptr_t)addr + len < (uintptr_t)addr || (flags & ~CRPC_RDMA_MR_RELAXED) != 0)
		return crpc_fail(-EINVAL, "mr_reg: %llu bytes at %p are no region",
			(unsigned long long)len, addr);
	return dev->ops->mr_reg(dev, addr, len, flags, mr);
}

void
crpc_rdma_mr_dereg(struct crpc_rdma *dev, struct crpc_rdma_mr *mr)
{
	if (mr == NULL || mr->priv == NULL)
		return;
	dev->ops->mr_dereg(dev, mr);
	memset(mr, 0, sizeof(*mr));
}

struct crpc_rdma_qp *
crpc_rdma_qp_create(struct crpc_rdma *dev, const struct crpc_rdma_qp_conf *conf)
{
	struct crpc_rdma_qp_conf with;
	bool ud;

	if (dev == NULL || conf == NULL)
		return crpc_null(
			crpc_fail(-EINVAL, "qp_create: %s is NULL", dev == NULL ? "dev" : "conf"));
	with = *conf;
	ud = conf->transport == CRPC_RDMA_UD;
	if (crpc_conf_range("transport", conf->transport, 0, CRPC_RDMA_UD) ||
		CRPC_CONF(&with, sq_depth, ud ? DEFAULT_UD_SQ : DEFAULT_SQ_DEPTH, 1,
			CRPC_RDMA_QUEUE_DEPTH_MAX) ||
		CRPC_CONF(&with, rq_depth, ud ? DEFAULT_UD_RQ : DEFAULT_RQ_DEPTH, 1,
			CRPC_RDMA_QUEUE_DEPTH_MAX))
		return crpc_null(-EINVAL);
	if (ud && dev->ops->ah_create == NULL)
		return crpc_null(crpc_fail(
			-EOPNOTSUPP, "qp_create: driver %s has no datagrams", dev->ops->name));
	return dev->ops->qp_create(dev, &with);
}

int
crpc_rdma_qp_drain(struct crpc_rdma_qp *qp)
{
	if (qp == NULL || qp->dev->ops->qp_drain == NULL)
		return 0;
	return qp->dev->ops->qp_drain(qp);
}

void
crpc_rdma_qp_free(struct crpc_rdma_qp *qp)
{
	if (qp != NULL)
		qp->dev->ops->qp_free(qp);
}

void
crpc_rdma_qp_addr(const struct crpc_rdma_qp *qp, uint8_t addr[CRPC_RDMA_ADDR_LEN])
{
	memset(addr, 0, CRPC_RDMA_ADDR_LEN);
	qp->dev->ops->qp_addr(qp, addr);
}

int
crpc_rdma_qp_connect(struct crpc_rdma_qp *qp, const uint8_t peer[CRPC_RDMA_ADDR_LEN])
{
	uint8_t copy[CRPC_RDMA_ADDR_LEN];

	/* The bytes may lie in memory that the peer can write: the driver checks and uses a
	 * copy. */
	memcpy(copy, peer, sizeof(copy));
	return qp->dev->ops->qp_connect(qp, copy);
}

int
crpc_rdma_qp_in_order(struct crpc_rdma_qp *qp)
{
	return qp->dev->ops->qp_in_order == NULL || qp->dev->ops->qp_in_order(qp) != 0;
}

struct crpc_rdma_ah *
crpc_rdma_ah_create(struct crpc_rdma_qp *ud, const uint8_t peer[CRPC_RDMA_ADDR_LEN])
{
	uint8_t copy[CRPC_RDMA_ADDR_LEN];

	/* As qp_connect: the driver checks and uses a copy. */
	memcpy(copy, peer, sizeof(copy));
	return ud->dev->ops->ah_create(ud, copy);
}

void
crpc_rdma_ah_free(struct crpc_rdma_ah *ah)
{
	if (ah != NULL)
		ah->dev->ops->ah_free(ah);
}
