/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The CUDA driver's library, opened when it is needed.
 */
#include "gpudev_cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crpc_log.h"
#include "crpc_unpack_gpudev.h"
#include "crpc_util.h"

#define SYMBOL(name, symbol, ...) {#symbol, offsetof(struct gpudev_dev, name)},

static const struct {
	const char *symbol;
	size_t at;
} calls[] = {GPUDEV_CALLS(SYMBOL)};

const char *
__crpc_gpudev_error(const struct gpudev_dev *d, int result)
{
	const char *name = NULL;

	return d->error_name(result, &name) == 0 && name != NULL ? name : "an unknown CUDA error";
}

/* The handle is never closed: CUDA's library does not bear being unloaded. */
static int
library_open(struct gpudev_dev *d)
{
	void *library = dlopen(GPUDEV_LIBRARY, RTLD_NOW | RTLD_LOCAL), *fn;

	if (library == NULL)
		return crpc_fail(-ENODEV,
			"gpudev: %s; install NVIDIA's driver, or take another engine", dlerror());
	for (size_t i = 0; i < CRPC_DIM(calls); i++) {
		fn = dlsym(library, calls[i].symbol);
		if (fn == NULL)
			return crpc_fail(-ENODEV,
				"gpudev: " GPUDEV_LIBRARY " has no %s; install a newer driver",
				calls[i].symbol);
		/* ISO C has no conversion between pointers to objects and to functions. */
		memcpy((char *)d + calls[i].at, &fn, sizeof(fn));
	}
	return 0;
}

static int
device_find(struct gpudev_dev *d, const char *arg)
{
	char *end;
	long n = 0;

	if (arg != NULL && strchr(arg, ':') != NULL)
		return d->device_by_pci(&d->dev, arg);
	if (arg != NULL) {
		errno = 0;
		n = strtol(arg, &end, 10);
		if (end == arg || *end != '\0' || errno != 0 || n < 0 || n > INT16_MAX)
			return crpc_fail(-EINVAL,
				"gpudev: \"%s\" names no GPU; give a number from 0 on, or a PCI "
				"address",
				arg);
	}
	return d->device_get(&d->dev, (int)n);
}

int
__crpc_gpudev_open(struct gpudev_dev *d, const char *arg)
{
	const char *what = "cuInit";
	int rc = library_open(d);

	if (rc != 0)
		return rc;
	rc = d->init(0);
	if (rc == 0) {
		what = "no such device";
		rc = device_find(d, arg);
		if (rc < 0)
			return rc;
	}
	if (rc == 0) {
		what = "retaining its context";
		rc = d->primary_retain(&d->ctx, d->dev);
	}
	if (rc == 0) {
		what = "entering its context";
		rc = gpudev_enter(d);
		if (rc == 0)
			return 0;
		d->primary_release(d->dev);
	}
	return crpc_fail(-ENODEV, "gpudev: GPU %s: %s: %s; nvidia-smi shows what there is",
		arg != NULL ? arg : "0", what, __crpc_gpudev_error(d, rc));
}

void
__crpc_gpudev_close(struct gpudev_dev *d)
{
	d->primary_release(d->dev);
}

/* ---- device memory for others ---- */

void *
crpc_unpack_gpudev_alloc(const char *arg, uint64_t len)
{
	struct gpudev_dev d;
	uint64_t ptr = 0;
	int rc = __crpc_gpudev_open(&d, arg);

	if (rc != 0)
		return crpc_null(rc);
	rc = d.mem_alloc(&ptr, len);
	gpudev_leave(&d);
	if (rc == 0)
		return (void *)(uintptr_t)ptr; /* The context stays until it is freed. */
	crpc_err("gpudev: %llu bytes of GPU %d: %s", (unsigned long long)len, d.dev,
		__crpc_gpudev_error(&d, rc));
	__crpc_gpudev_close(&d);
	return crpc_null(-ENOMEM);
}

int
crpc_unpack_gpudev_read(const char *arg, void *host, const void *mem, uint64_t len)
{
	struct gpudev_dev d;
	int rc = __crpc_gpudev_open(&d, arg);

	if (rc != 0)
		return rc;
	rc = d.mem_read(host, (uintptr_t)mem, len);
	gpudev_leave(&d);
	if (rc != 0)
		crpc_err("gpudev: reading %llu bytes of GPU %d: %s", (unsigned long long)len, d.dev,
			__crpc_gpudev_error(&d, rc));
	__crpc_gpudev_close(&d);
	return rc == 0 ? 0 : -EIO;
}

void
crpc_unpack_gpudev_free(const char *arg, void *mem)
{
	struct gpudev_dev d;

	if (mem == NULL || __crpc_gpudev_open(&d, arg) != 0)
		return;
	d.mem_free((uintptr_t)mem);
	gpudev_leave(&d);
	__crpc_gpudev_close(&d);
	__crpc_gpudev_close(&d); /* That of alloc. */
}
