/* A burst of mbufs that are taken once and made to point at the packets of each burst. */
#include "chain_mbufs.h"

#include "message.h"

#include <rte_errno.h>
#include <rte_mbuf.h>

static struct rte_mbuf *mbufs[BURST_MOST];

void chain_mbufs_take(void)
{
	struct rte_mempool *pool = rte_pktmbuf_pool_create("chain", BURST_MOST, 0, 0, RTE_PKTMBUF_HEADROOM, SOCKET_ID_ANY);

	if (!pool || rte_pktmbuf_alloc_bulk(pool, mbufs, BURST_MOST) != 0)
		fail(EXIT_TESTBED, "raise --memory-mib", "no memory for mbufs: %s", rte_strerror(rte_errno));
}

void chain_mbufs_lend(struct packet *packets, struct chain_buffer *const *buffers, uint32_t count, uint32_t room)
{
	for (uint32_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = mbufs[i];

		mbuf->buf_addr = buffers[i]->bytes;
		mbuf->buf_len = (uint16_t)(room < UINT16_MAX ? room : UINT16_MAX);
		mbuf->data_off = (uint16_t)buffers[i]->offset;
		mbuf->data_len = (uint16_t)buffers[i]->length;
		mbuf->pkt_len = buffers[i]->length;
		packets[i].handle = mbuf;
	}
}
