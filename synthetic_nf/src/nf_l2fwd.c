/* Layer-2 forwarder: new Ethernet addresses, nothing else (the sample application of DPDK). */
#include "headers.h"
#include "nf.h"

#define NEXT_HOP 2

static void l2fwd_start(struct nf_instance *self)
{
	self->counters[0].name = "short_frames";
}

static void l2fwd_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		if (packets[i].length >= ETHERNET_BYTES) {
			ethernet_address(&packets[i], NEXT_HOP);
		} else {
			packets[i].verdict = VERDICT_DROP;
			counter_add(&self->counters[0].value, 1);
		}
	}
}

static void l2fwd_stop(struct nf_instance *self)
{
	(void)self;
}

const struct nf nf_l2fwd = {
	.name = "l2fwd",
	.summary = "forwards every frame with new Ethernet addresses",
	.start = l2fwd_start,
	.process = l2fwd_process,
	.stop = l2fwd_stop,
};
