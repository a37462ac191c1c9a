/* No DPDK, no mbufs. */
#include "chain_mbufs.h"

void chain_mbufs_take(void)
{
}

void chain_mbufs_lend(struct packet *packets, struct chain_buffer *const *buffers, uint32_t count, uint32_t room)
{
	(void)packets;
	(void)buffers;
	(void)count;
	(void)room;
}
