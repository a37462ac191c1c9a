/*
 * IPsec gateway: ESP in tunnel mode (RFC 4303), AES-128-CBC and HMAC-SHA1-96, by DPDK's cryptodev (openssl or ipsec_mb).
 *
 * Keys and addresses are fixed, since it is a load and not a product: see the table below and the test that decrypts.
 */
#include "crypto_session.h"
#include "headers.h"
#include "message.h"
#include "nf.h"
#include "random.h"

#include <rte_mbuf.h>
#include <stdlib.h>

#define ESP_BYTES 8
#define IV_BYTES 16
#define ICV_BYTES 12
#define BLOCK 16
#define TUNNEL_BYTES (IPV4_BYTES + ESP_BYTES + IV_BYTES)
#define TUNNEL_SOURCE 0xc0000201u      /* 192.0.2.1 */
#define TUNNEL_DESTINATION 0xc6336401u /* 198.51.100.1 */
#define SECURITY_INDEX 0x00000100u
#define NEXT_HEADER_IPV4 4
#define NEXT_HOP 2

enum { COUNTER_ENCRYPTED, COUNTER_FAILED, COUNTER_NOT_IP };

struct ipsec {
	struct crypto_session *session;
	uint32_t sequence;
	uint64_t initialisation; /* stream that the IVs come from */
};

static void ipsec_start(struct nf_instance *self)
{
	struct ipsec *state = allocate(1, sizeof(*state));

	state->session = crypto_session_open(self->options->crypto_device, self->number);
	state->initialisation = (uint64_t)self->options->seed;
	self->state = state;
	self->counters[COUNTER_ENCRYPTED].name = "encrypted";
	self->counters[COUNTER_FAILED].name = "crypto_failed";
	self->counters[COUNTER_NOT_IP].name = "not_encryptable";
}

static void write_outer_header(uint8_t *ip, uint16_t total)
{
	static const uint8_t FIXED[12] = { 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, PROTOCOL_ESP, 0, 0 };

	memcpy(ip, FIXED, sizeof(FIXED));
	store16(ip + 2, total);
	store32(ip + 12, TUNNEL_SOURCE);
	store32(ip + 16, TUNNEL_DESTINATION);
	store16(ip + 10, checksum_of(ip, IPV4_BYTES));
}

static void write_esp_header(struct ipsec *state, uint8_t *esp)
{
	uint64_t words[2] = { random_next(&state->initialisation), random_next(&state->initialisation) };

	store32(esp, SECURITY_INDEX);
	store32(esp + 4, ++state->sequence);
	memcpy(esp + ESP_BYTES, words, IV_BYTES);
}

/* Wrap a packet into outer IP, ESP header, IV, padding, trailer and room for the ICV; 0 on success. */
static int encapsulate(struct ipsec *state, struct packet *packet, struct crypto_job *job)
{
	struct headers headers = headers_find(packet);
	struct rte_mbuf *mbuf = packet->handle;
	uint32_t inner, padding, excess;
	uint8_t *esp, *trailer;

	if (!headers.ip || mbuf->nb_segs != 1)
		return -1;
	inner = headers.ip_bytes;
	padding = (BLOCK - (inner + 2) % BLOCK) % BLOCK;
	excess = packet->length - ETHERNET_BYTES - inner; /* Ethernet padding of short frames does not travel */
	if (excess)
		rte_pktmbuf_trim(mbuf, (uint16_t)excess);
	if (!rte_pktmbuf_prepend(mbuf, TUNNEL_BYTES) || !rte_pktmbuf_append(mbuf, (uint16_t)(padding + 2 + ICV_BYTES)))
		return -1;
	packet->data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	packet->length = rte_pktmbuf_data_len(mbuf);
	memmove(packet->data, packet->data + TUNNEL_BYTES, ETHERNET_BYTES);
	esp = packet->data + ETHERNET_BYTES + IPV4_BYTES;
	trailer = esp + ESP_BYTES + IV_BYTES + inner;
	for (uint32_t i = 0; i < padding; i++)
		trailer[i] = (uint8_t)(i + 1); /* RFC 4303, section 2.4 */
	trailer[padding] = (uint8_t)padding;
	trailer[padding + 1] = NEXT_HEADER_IPV4;
	write_outer_header(packet->data + ETHERNET_BYTES, (uint16_t)(packet->length - ETHERNET_BYTES));
	write_esp_header(state, esp);
	ethernet_address(packet, NEXT_HOP);
	*job = (struct crypto_job){
		.mbuf = mbuf,
		.cipher_offset = ETHERNET_BYTES + TUNNEL_BYTES,
		.cipher_bytes = inner + padding + 2,
		.hash_offset = ETHERNET_BYTES + IPV4_BYTES,
		.hash_bytes = ESP_BYTES + IV_BYTES + inner + padding + 2,
		.initialisation = esp + ESP_BYTES,
	};
	return 0;
}

static void ipsec_process(struct nf_instance *self, struct packet *packets, uint32_t count)
{
	struct ipsec *state = self->state;
	struct crypto_job jobs[BURST_MOST];
	uint32_t indices[BURST_MOST], wrapped = 0;

	for (uint32_t i = 0; i < count; i++) {
		if (encapsulate(state, &packets[i], &jobs[wrapped]) == 0) {
			indices[wrapped++] = i;
		} else {
			packets[i].verdict = VERDICT_DROP;
			counter_add(&self->counters[COUNTER_NOT_IP].value, 1);
		}
	}
	crypto_session_run(state->session, jobs, wrapped);
	for (uint32_t i = 0; i < wrapped; i++) {
		counter_add(&self->counters[jobs[i].done ? COUNTER_ENCRYPTED : COUNTER_FAILED].value, 1);
		if (!jobs[i].done)
			packets[indices[i]].verdict = VERDICT_DROP;
	}
	counter_add(&self->accesses, wrapped);
}

static void ipsec_stop(struct nf_instance *self)
{
	struct ipsec *state = self->state;

	crypto_session_close(state->session);
	free(state);
}

const struct nf nf_ipsec = {
	.name = "ipsec",
	.summary = "ESP tunnel, AES-128-CBC and HMAC-SHA1-96 (cryptodev: openssl or ipsec_mb)",
	.start = ipsec_start,
	.process = ipsec_process,
	.stop = ipsec_stop,
	.needs_mbufs = true,
};
