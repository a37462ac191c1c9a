/* DPDK's environment layer (EAL): the arguments it gets, hugepages or none, and its traces removed afterwards. */
#define _GNU_SOURCE
#include "platform.h"

#include "message.h"
#include "pcap_file.h"

#include <dirent.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MOST 256
#define ARGUMENT_BYTES 4608
#define FREE_HUGEPAGES "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
#define FRAMES_OF_NET_PCAP 65000u /* its ring holds no more; larger captures are replayed by ourselves */

static struct {
	char *words[ARGUMENTS_MOST + 1];
	int count;
	char prefix[64];
	char runtime[256];
	bool hugepages;
} eal;

static void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void add(const char *format, ...)
{
	va_list arguments;
	char *word = allocate(1, ARGUMENT_BYTES);

	va_start(arguments, format);
	vsnprintf(word, ARGUMENT_BYTES, format, arguments);
	va_end(arguments);
	if (eal.count == ARGUMENTS_MOST)
		fail(EXIT_USAGE, "give fewer", "more than %d arguments for DPDK", ARGUMENTS_MOST);
	eal.words[eal.count++] = word;
}

static bool given(const struct options *options, const char *word)
{
	for (int i = 0; i < options->rest_count; i++)
		if (strncmp(options->rest[i], word, strlen(word)) == 0)
			return true;
	return false;
}

static double free_hugepages_mib(void)
{
	FILE *stream = fopen(FREE_HUGEPAGES, "r");
	unsigned long pages = 0;

	if (!stream)
		return 0;
	if (fscanf(stream, "%lu", &pages) != 1)
		pages = 0;
	fclose(stream);
	return (double)pages * 2;
}

static void add_memory(const struct options *options)
{
	bool enough = free_hugepages_mib() >= options->memory_mib;

	eal.hugepages = !options->no_huge && !given(options, "--no-huge") && enough;
	if (!options->no_huge && !enough && !given(options, "--no-huge"))
		note("%g MiB of free 2 MiB hugepages, %g MiB wanted: running without them, which is slower", free_hugepages_mib(),
		     options->memory_mib);
	/* Both leave no files in hugetlbfs; the first is refused without hugepages. */
	add(eal.hugepages ? "--in-memory" : "--no-shconf");
	if (given(options, "--no-huge") || given(options, "-m"))
		return;
	if (!eal.hugepages)
		add("--no-huge");
	add("-m");
	add("%.0f", options->memory_mib);
}

/* The main thread only sleeps and prints; workers pin themselves later. */
static void add_cores(const struct options *options)
{
	char list[2048] = "";
	cpu_set_t allowed;
	size_t used = 0;

	if (given(options, "-l") || given(options, "--lcores") || given(options, "-c"))
		return;
	sched_getaffinity(0, sizeof(allowed), &allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE && used < sizeof(list) - 8; cpu++)
		if (CPU_ISSET(cpu, &allowed))
			used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%d", used ? "," : "", cpu);
	add("--lcores");
	add("0@(%s)", list);
}

/* --pcap becomes one net_pcap port per instance, unless the capture is larger than it can hold. */
static void add_captures(const struct options *options)
{
	struct traffic traffic;
	bool once = strcmp(options->replay, "once") == 0;

	if (!options->pcap)
		return;
	if (strpbrk(options->pcap, ",") || (options->tx_pcap && strpbrk(options->tx_pcap, ",")))
		fail(EXIT_USAGE, "rename the file", "DPDK cannot open a capture with a comma in its name");
	traffic = pcap_read(options->pcap);
	traffic_release(&traffic);
	if (traffic.count > FRAMES_OF_NET_PCAP && !once)
		return;
	for (unsigned i = 0; i < knob_integer(options, KNOB_INSTANCES); i++) {
		add("--vdev");
		add("net_pcap%u,rx_pcap=%s%s%s%s", i, options->pcap, once ? "" : ",infinite_rx=1",
		    options->tx_pcap ? ",tx_pcap=" : "", options->tx_pcap ? options->tx_pcap : "");
	}
}

static void build_arguments(const struct options *options)
{
	add("slomo-nf");
	add_cores(options);
	add_memory(options);
	if (!given(options, "-a") && !given(options, "--allow"))
		add("--no-pci");
	snprintf(eal.prefix, sizeof(eal.prefix), "slomo-nf-%d", (int)getpid());
	if (options->file_prefix)
		snprintf(eal.prefix, sizeof(eal.prefix), "%s", options->file_prefix);
	add("--file-prefix=%s", eal.prefix);
	add("--log-level=.*,warning");
	add_captures(options);
	for (unsigned i = 0; i < options->vdev_count; i++) {
		add("--vdev");
		add("%s", options->vdevs[i]);
	}
	for (int i = 0; i < options->rest_count; i++)
		add("%s", options->rest[i]);
}

/* EAL leaves its directory under /var/run/dpdk behind: remove what is in it (only files of our own prefix). */
static void remove_runtime(void)
{
	DIR *directory = opendir(eal.runtime);
	struct dirent *entry;
	char path[sizeof(eal.runtime) + 257];

	if (!directory)
		return;
	while ((entry = readdir(directory)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", eal.runtime, entry->d_name);
		if (entry->d_name[0] != '.')
			unlink(path);
	}
	closedir(directory);
	rmdir(eal.runtime);
}

/* EAL prints its usage to stdout when it fails, where only JSON lines belong: send that to stderr. */
static int initialise(void)
{
	char *words[ARGUMENTS_MOST + 1];
	int output = dup(STDOUT_FILENO), result;

	memcpy(words, eal.words, sizeof(words)); /* EAL reorders and keeps what it gets */
	dup2(STDERR_FILENO, STDOUT_FILENO);
	result = rte_eal_init(eal.count, words);
	fflush(stdout);
	dup2(output, STDOUT_FILENO);
	close(output);
	return result;
}

void platform_start(const struct options *options)
{
	int result;

	build_arguments(options);
	message_before_failure(remove_runtime);
	result = initialise();
	snprintf(eal.runtime, sizeof(eal.runtime), "%s", rte_eal_get_runtime_dir());
	if (result < 0)
		fail(EXIT_TESTBED, "its own messages are above; try --no-huge, or another --vdev", "DPDK does not start: %s",
		     rte_strerror(rte_errno));
}

void platform_stop(void)
{
	rte_eal_cleanup();
	remove_runtime();
}

void platform_hide(void)
{
	remove_runtime();
}

void platform_enter_thread(void)
{
	rte_thread_register();
}

bool platform_hugepages(void)
{
	return rte_eal_has_hugepages();
}

const char *platform_file_prefix(void)
{
	return eal.prefix;
}
