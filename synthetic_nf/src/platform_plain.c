/* No DPDK: nothing to bring up. */
#include "platform.h"

#include "message.h"

void platform_start(const struct options *options)
{
	if (options->vdev_count)
		fail(EXIT_USAGE, "use --pcap FILE, or build with meson on libdpdk-dev", "--vdev needs the DPDK build");
	if (options->tx_first > 0)
		fail(EXIT_USAGE, "leave it out: preloaded frames need no start", "--tx-first needs a DPDK port");
	if (options->rest_count)
		note("the arguments behind -- are for DPDK; this is the portable build, they are ignored");
}

void platform_stop(void)
{
}

void platform_hide(void)
{
}

void platform_publish(struct worker *workers, unsigned count)
{
	(void)workers;
	(void)count;
}

void platform_enter_thread(void)
{
}

bool platform_hugepages(void)
{
	return false;
}

const char *platform_file_prefix(void)
{
	return "";
}
