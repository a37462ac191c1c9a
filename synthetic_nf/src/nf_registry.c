/* The network functions of this build, by name. */
#include "message.h"
#include "nf.h"

#include <stdio.h>
#include <string.h>

static const struct nf *const NFS[] = {
	&nf_synthetic, &nf_l2fwd, &nf_router, &nf_firewall, &nf_flowstats, &nf_nat, &nf_maglev, &nf_dpi, &nf_compute,
#ifdef SLOMO_DPDK
	&nf_ipsec,
#endif
};
#define NF_COUNT (sizeof(NFS) / sizeof(NFS[0]))

const struct nf *nf_find(const char *name)
{
	for (unsigned i = 0; i < NF_COUNT; i++)
		if (strcmp(name, NFS[i]->name) == 0)
			return NFS[i];
	if (strcmp(name, "ipsec") == 0)
		fail(EXIT_USAGE, "build with meson on libdpdk-dev", "'ipsec' needs the DPDK build; this is the portable one");
	fail(EXIT_USAGE, "slomo-nf --list-nfs prints the names", "there is no network function '%s'", name);
}

void nf_print_all(void)
{
	for (unsigned i = 0; i < NF_COUNT; i++)
		printf("%-10s %s\n", NFS[i]->name, NFS[i]->summary);
}
