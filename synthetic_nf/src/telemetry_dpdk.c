/* The workers' counters on DPDK's telemetry socket, beside /ethdev/stats: /slomo/nf,<instance>. */
#include "platform.h"
#include "statistics.h"

#include <rte_telemetry.h>
#include <stdlib.h>

static struct worker *published;
static unsigned published_count;

static int on_request(const char *command, const char *parameters, struct rte_tel_data *data)
{
	unsigned instance = parameters ? (unsigned)strtoul(parameters, NULL, 10) : 0;
	struct snapshot snapshot;

	(void)command;
	if (instance >= published_count)
		return -1;
	snapshot_take(&snapshot, &published[instance]);
	rte_tel_data_start_dict(data);
	rte_tel_data_add_dict_string(data, "nf", published[instance].nf.nf->name);
	rte_tel_data_add_dict_u64(data, "packets", snapshot.counters.packets);
	rte_tel_data_add_dict_u64(data, "bytes", snapshot.counters.bytes);
	rte_tel_data_add_dict_u64(data, "sent", snapshot.counters.sent);
	rte_tel_data_add_dict_u64(data, "denied", snapshot.counters.denied);
	rte_tel_data_add_dict_u64(data, "send_drops", snapshot.counters.send_drops);
	rte_tel_data_add_dict_u64(data, "queue_drops", snapshot.counters.queue_drops);
	rte_tel_data_add_dict_u64(data, "port_drops", snapshot.missed);
	rte_tel_data_add_dict_u64(data, "busy_ticks", snapshot.counters.busy_ticks);
	rte_tel_data_add_dict_u64(data, "accesses", snapshot.accesses);
	for (unsigned i = 0; i < NF_COUNTERS_MOST && snapshot.own[i].name; i++)
		rte_tel_data_add_dict_u64(data, snapshot.own[i].name, snapshot.own[i].value);
	return 0;
}

void platform_publish(struct worker *workers, unsigned count)
{
	published = workers;
	published_count = count;
	rte_telemetry_register_cmd("/slomo/nf", on_request, "Counters of a network function. Parameters: instance");
}
