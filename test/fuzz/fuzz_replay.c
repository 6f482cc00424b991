/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A fuzz target as a plain test: every file of the corpus, then a fixed number of inputs made from
 * them by a seeded mutator. Needs no libFuzzer, so every build with every compiler runs it.
 *
 *     fuzz_NAME [--mutations N] [--seed S] FILE|FOLDER...
 */
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "rnd.h"

#define FILES_MAX 4096
#define INPUT_MAX 65536

struct input {
	uint8_t *data;
	size_t size;
};

static struct input corpus[FILES_MAX];
static size_t corpus_len;
static uint64_t rng;

/* What runs now, for the handler: a file's name, or the number of a mutation. */
static char now_text[512];
static const struct input *now_input;

static uint64_t
next_random(uint64_t below)
{
	return rnd(&rng) % below;
}

/* Print the input that a target died of, then die of it. */
static void
on_death(int sig)
{
	static const char hex[] = "0123456789abcdef";
	char out[128];
	size_t i, n = 0;
	ssize_t ignored = write(STDERR_FILENO, now_text, strlen(now_text));

	for (i = 0; now_input != NULL && i < now_input->size; i++) {
		out[n++] = hex[now_input->data[i] >> 4];
		out[n++] = hex[now_input->data[i] & 15];
		if (n < 96 && i + 1 < now_input->size)
			continue;
		out[n++] = '\n';
		ignored = write(STDERR_FILENO, out, n);
		n = 0;
	}
	(void)ignored;
	signal(sig, SIG_DFL);
	raise(sig);
}

static int
run(const struct input *in)
{
	/* A copy of exactly its size: a sanitizer sees each byte that is read behind it. */
	uint8_t *copy = malloc(in->size == 0 ? 1 : in->size);

	if (copy == NULL)
		return 1;
	memcpy(copy, in->data, in->size);
	now_input = in;
	LLVMFuzzerTestOneInput(copy, in->size);
	free(copy);
	return 0;
}

static int
load_file(const char *path)
{
	struct input *in = &corpus[corpus_len];
	FILE *f = fopen(path, "rb");

	if (f == NULL || corpus_len == FILES_MAX) {
		fprintf(stderr, "%s: cannot be read, or one of more than %d files\n", path,
				FILES_MAX);
		if (f != NULL)
			fclose(f);
		return 1;
	}
	in->data = malloc(INPUT_MAX);
	in->size = in->data == NULL ? 0 : fread(in->data, 1, INPUT_MAX, f);
	fclose(f);
	corpus_len++;
	snprintf(now_text, sizeof(now_text), "the input is the file %s:\n", path);
	return in->data == NULL || run(in);
}

static int
by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int
load(const char *path)
{
	char file[4096];
	struct dirent **list;
	struct stat st;
	int n, i, rc = 0;

	if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
		return load_file(path);
	n = scandir(path, &list, NULL, by_name);
	if (n < 0) {
		fprintf(stderr, "%s: cannot be read\n", path);
		return 1;
	}
	for (i = 0; i < n; i++) {
		snprintf(file, sizeof(file), "%s/%s", path, list[i]->d_name);
		if (list[i]->d_name[0] != '.')
			rc |= load_file(file);
		free(list[i]);
	}
	free(list);
	return rc;
}

/* Overwrite a number of 1, 2, 4 or 8 bytes by one that is likely to lie at some limit. */
static void
put_number(struct input *in)
{
	static const uint64_t edges[] = {0, 1, 2, 7, 8, 63, 64, 127, 128, 255, 256, 4095, 4096,
			32767, 65535, 65536, INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX};
	uint64_t v = edges[next_random(sizeof(edges) / sizeof(edges[0]))] + next_random(3) - 1;
	size_t len = (size_t)1 << next_random(4);

	if (in->size >= len)
		memcpy(in->data + next_random(in->size - len + 1), &v, len);
}

/* Put a piece of another input behind a random place of this one, over what was there. */
static void
splice(struct input *in)
{
	const struct input *from = &corpus[next_random(corpus_len)];
	size_t at = next_random(in->size + 1), begin, len;

	if (from->size == 0)
		return;
	begin = next_random(from->size);
	len = 1 + next_random(from->size - begin);
	if (len > INPUT_MAX - at)
		len = INPUT_MAX - at;
	memcpy(in->data + at, from->data + begin, len);
	if (at + len > in->size)
		in->size = at + len;
}

static void
mutate(struct input *in)
{
	const struct input *from = &corpus[next_random(corpus_len)];
	uint64_t steps = 1 + next_random(6);

	memcpy(in->data, from->data, from->size);
	in->size = from->size;
	while (steps-- != 0) {
		switch (next_random(6)) {
		case 0:
			if (in->size != 0)
				in->data[next_random(in->size)] ^= (uint8_t)(1 << next_random(8));
			break;
		case 1:
			if (in->size != 0)
				in->data[next_random(in->size)] = (uint8_t)next_random(256);
			break;
		case 2:
		case 3:
			put_number(in);
			break;
		case 4:
			in->size = next_random(in->size + 1);
			break;
		default:
			splice(in);
			break;
		}
	}
}

int
main(int argc, char **argv)
{
	static const int deaths[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
	unsigned long mutations = 0, i;
	struct input in;
	int k, rc = 0;

	rng = 1;
	for (k = 0; k < (int)(sizeof(deaths) / sizeof(deaths[0])); k++)
		signal(deaths[k], on_death);
	for (k = 1; k < argc && rc == 0; k++) {
		if (strcmp(argv[k], "--mutations") == 0 && k + 1 < argc)
			mutations = strtoul(argv[++k], NULL, 10);
		else if (strcmp(argv[k], "--seed") == 0 && k + 1 < argc)
			rng = strtoull(argv[++k], NULL, 10) | 1;
		else
			rc = load(argv[k]);
	}
	if (corpus_len == 0) {
		fprintf(stderr, "no input: the corpus is empty\n");
		return 1;
	}
	printf("%zu inputs of the corpus, %lu mutations from seed %llu\n", corpus_len, mutations,
			(unsigned long long)rng);
	fflush(stdout);
	in.data = malloc(INPUT_MAX);
	for (i = 0; i < mutations && rc == 0 && in.data != NULL; i++) {
		snprintf(now_text, sizeof(now_text), "the input is mutation %lu:\n", i);
		mutate(&in);
		rc = run(&in);
	}
	rc |= in.data == NULL;
	free(in.data);
	while (corpus_len != 0)
		free(corpus[--corpus_len].data);
	return rc;
}
