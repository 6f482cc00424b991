/* SPDX-License-Identifier: BSD-3-Clause */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "app_fail.h"
#include "profile.h"

#define NS_MAX 1e12

/* A number of a profile, and how many of its own units are one of the file's. */
struct field {
	const char *name;
	size_t at;
	double unit;
};

#define NIC(name, of, unit)                                                                        \
	{                                                                                          \
		name, offsetof(struct sim_model, nic.of), unit                                     \
	}
#define CPU(name)                                                                                  \
	{                                                                                          \
#name "_ns", offsetof(struct sim_model, cpu.name), 1e3                             \
	}

static const struct field nic_fields[] = {
	NIC("mmio_ns", mmio, 1e3),
	NIC("fetch_ns", fetch, 1e3),
	NIC("qp_ns", qp, 1e3),
	NIC("wqe_ns", wqe, 1e3),
	NIC("doorbell_ns", doorbell, 1e3),
	NIC("dc_switch_ns", dc_switch, 1e3),
	NIC("cache_entries", cache, 1),
	NIC("cache_miss_ns", cache_miss, 1e3),
	NIC("read_ns", read, 1e3),
	NIC("send_ns", send, 1e3),
	NIC("packet_ns", packet, 1e3),
	NIC("wire_ns_per_kib", wire, 1e3),
	NIC("mtu_bytes", mtu, 1),
	NIC("propagation_ns", propagation, 1e3),
	NIC("recv_ns", recv, 1e3),
	NIC("recv_queue_ns", recv_queue, 1e3),
	NIC("recv_cq_ns", recv_cq, 1e3),
	NIC("land_ns", land, 1e3),
	NIC("write_ns", write, 1e3),
	NIC("ack_ns", ack, 1e3),
	NIC("retry_ns", retry, 1e3),
	NIC("lost_ns", lost, 1e3),
};

static const struct field cpu_fields[] = {
	CPU(turn),
	CPU(cqe),
	CPU(message_in),
	CPU(message_out),
	{"cpu_recv_ns", offsetof(struct sim_model, cpu.recv), 1e3},
	{"cpu_wqe_ns", offsetof(struct sim_model, cpu.wqe), 1e3},
	{"cpu_doorbell_ns", offsetof(struct sim_model, cpu.doorbell), 1e3},
	CPU(client_in),
	CPU(client_out),
	CPU(store),
	CPU(client),
	CPU(hop),
	CPU(line),
	CPU(ring_in),
};

/* @return false: there is no such number, or it cannot be that. */
static bool
field_set(struct sim_model *m, const struct field *fields, size_t n, const char *name, double value)
{
	for (size_t i = 0; i < n; i++) {
		if (strcmp(fields[i].name, name) != 0)
			continue;
		if (!(value >= 0 && value <= NS_MAX))
			return false;
		*(uint64_t *)((char *)m + fields[i].at) = (uint64_t)(value * fields[i].unit + 0.5);
		return true;
	}
	return false;
}

static void
profile_path(char *buf, size_t len, const char *name)
{
	static const char *const folders[] = {SIM_PROFILES_SOURCE, SIM_PROFILES_INSTALLED};

	snprintf(buf, len, "%s", name);
	for (size_t i = 0; i < CRPC_DIM(folders) && strchr(name, '/') == NULL; i++) {
		snprintf(buf, len, "%s/%s.json", folders[i], name);
		if (access(buf, R_OK) == 0)
			return;
	}
}

static int
profile_read(struct sim_model *m, const char *option, const char *name, const struct field *fields,
	size_t n)
{
	const char *key, *wrong = NULL;
	json_error_t error;
	char path[4096];
	json_t *o, *v, *value;

	profile_path(path, sizeof(path), name);
	o = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
	if (!json_is_object(o)) {
		json_decref(o);
		return app_fail("--%s %.64s: no profile can be read from %s%s%s; give the name of "
				"one in apps/simkv/profiles, or a path",
			option, name, path, o == NULL ? ": " : "", o == NULL ? error.text : "");
	}
	json_object_foreach (o, key, v) {
		value = json_object_get(v, "value");
		if (strcmp(key, "about") == 0)
			continue;
		if (!json_is_number(value) || !json_is_string(json_object_get(v, "source")) ||
			!field_set(m, fields, n, key, json_number_value(value)))
			wrong = key;
	}
	if (wrong != NULL)
		app_fail("--%s %s: '%.64s' is no number of such a profile, with a value and a "
			 "source",
			option, path, wrong);
	json_decref(o);
	return wrong == NULL ? 0 : APP_EXIT_USAGE;
}

static int
changes_apply(struct sim_model *m, const char *set)
{
	char *text = strdup(set), *save = NULL, *value, *end;
	int rc = text == NULL ? app_fail("no memory for --set") : 0;
	double v;

	for (char *t = rc != 0 ? NULL : strtok_r(text, ",", &save); t != NULL && rc == 0;
		t = strtok_r(NULL, ",", &save)) {
		value = strchr(t, '=');
		if (value != NULL)
			*value++ = '\0';
		v = value == NULL ? 0 : strtod(value, &end);
		m->changed++;
		if (value == NULL || *value == '\0' || *end != '\0' ||
			(!field_set(m, nic_fields, CRPC_DIM(nic_fields), t, v) &&
				!field_set(m, cpu_fields, CRPC_DIM(cpu_fields), t, v)))
			rc = app_fail("--set '%.200s': give names of numbers of the profiles and "
				      "values of 0 or more, as recv_ns=570,hop_ns=80",
				set);
	}
	free(text);
	return rc;
}

int
sim_model_read(struct sim_model *m, const char *nic, const char *cpu, const char *set)
{
	int rc;

	*m = (struct sim_model){0};
	rc = profile_read(m, "nic", nic, nic_fields, CRPC_DIM(nic_fields));
	if (rc == 0)
		rc = profile_read(m, "cpu", cpu, cpu_fields, CRPC_DIM(cpu_fields));
	return rc == 0 && set != NULL ? changes_apply(m, set) : rc;
}
