/* Sender and receiver of a TCP chain; see chain_tcp.h. Nothing of it has a name outside its own namespaces. */
#define _GNU_SOURCE
#include "chain_tcp.h"

#include "clock.h"
#include "headers.h"
#include "message.h"
#include "nf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SENDER "192.0.2.1" /* TEST-NET-1 (RFC 5737) */
#define RECEIVER "192.0.2.2"
#define NETWORK "255.255.255.252"
#define PORT 5001
#define CHUNK 65536
#define PRIORITY 1       /* below the manager's 2 */
#define RETURNS 4096     /* acknowledgements on their way back */
#define RETURN_BYTES 128 /* IP and TCP without data have at most 120 */
#define TOS 1            /* bytes into the IP header */
#define IP_CHECKSUM_AT 10
#define ECN_BITS 3
#define ECN_NONE 0
#define ECN_CE 3
#define HINT "run as root, or grant CAP_NET_ADMIN and CAP_SYS_ADMIN; /dev/net/tun must be there (modprobe tun)"

struct return_packet {
	uint64_t due_ticks;
	uint32_t length;
	uint8_t bytes[RETURN_BYTES];
};

struct chain_tcp {
	int sender, receiver; /* tun devices */
	pid_t processes[2];
	uint64_t rtt_ticks;
	struct return_packet returns[RETURNS];
	uint32_t first, count;
};

static _Noreturn void cannot(const char *chain, const char *what)
{
	fail(EXIT_TESTBED, HINT, "chain '%s' is tcp, but %s: %s", chain, what, strerror(errno));
}

static void set_address(struct ifreq *request, const char *address)
{
	struct sockaddr_in place = { .sin_family = AF_INET };

	inet_pton(AF_INET, address, &place.sin_addr);
	memcpy(&request->ifr_addr, &place, sizeof(place));
}

/* A tun device of this namespace, up. */
static int open_tun(const struct plan_chain *chain, const char *address)
{
	struct ifreq request = { .ifr_flags = IFF_TUN | IFF_NO_PI };
	int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), control = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool good;

	strcpy(request.ifr_name, "chain");
	if (tun < 0 || control < 0 || ioctl(tun, TUNSETIFF, &request) != 0)
		cannot(chain->name, "/dev/net/tun gives no device");
	set_address(&request, address);
	good = ioctl(control, SIOCSIFADDR, &request) == 0;
	set_address(&request, NETWORK);
	good = good && ioctl(control, SIOCSIFNETMASK, &request) == 0;
	request.ifr_mtu = (int)chain->sizes[0] - ETHERNET_BYTES;
	good = good && ioctl(control, SIOCSIFMTU, &request) == 0;
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (!good || ioctl(control, SIOCSIFFLAGS, &request) != 0)
		cannot(chain->name, "its device cannot be set up");
	close(control);
	return tun;
}

/* Ask for ECN in this namespace, or for none; the handshake says if it came about. */
static void want_ecn(const char *chain, bool wanted)
{
	int file = open("/proc/sys/net/ipv4/tcp_ecn", O_WRONLY | O_CLOEXEC);

	if (file < 0 || write(file, wanted ? "1" : "0", 1) != 1)
		note("chain '%s': net.ipv4.tcp_ecn cannot be written: %s", chain, strerror(errno));
	if (file >= 0)
		close(file);
}

static struct sockaddr_in place_of(const char *address)
{
	struct sockaddr_in place = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	inet_pton(AF_INET, address, &place.sin_addr);
	return place;
}

/* Cubic: a sender that answers ECN, whatever is usual here (BBR does not). */
static int open_socket(const char *chain)
{
	int file = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (file < 0)
		cannot(chain, "there is no socket");
	if (setsockopt(file, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) != 0)
		setsockopt(file, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	return file;
}

static _Noreturn void receive_all(const char *chain, struct tcp_counts *counts)
{
	struct sockaddr_in place = place_of(RECEIVER);
	static uint8_t bytes[CHUNK];
	int listener = open_socket(chain), file;
	ssize_t count;

	if (bind(listener, (struct sockaddr *)&place, sizeof(place)) != 0 || listen(listener, 1) != 0)
		cannot(chain, "its receiver cannot listen");
	__atomic_store_n(&counts->listening, 1, __ATOMIC_RELEASE);
	while ((file = accept(listener, NULL, NULL)) < 0)
		;
	while ((count = read(file, bytes, sizeof(bytes))) > 0)
		counter_add(&counts->received_bytes, (uint64_t)count);
	_Exit(0);
}

static void count_sender(int file, struct tcp_counts *counts)
{
	struct tcp_info info = { 0 };
	socklen_t size = sizeof(info);

	if (getsockopt(file, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
		return;
	__atomic_store_n(&counts->ecn, !!(info.tcpi_options & TCPI_OPT_ECN), __ATOMIC_RELAXED);
	__atomic_store_n(&counts->retransmitted, info.tcpi_total_retrans, __ATOMIC_RELAXED);
}

static _Noreturn void send_all(const struct plan_chain *chain, struct tcp_counts *counts)
{
	struct sockaddr_in place = place_of(RECEIVER);
	uint64_t pace = (uint64_t)(chain->rate_mpps * 1e6 * chain->sizes[0]);
	static uint8_t bytes[CHUNK];
	int file = open_socket(chain->name);

	while (!__atomic_load_n(&counts->listening, __ATOMIC_ACQUIRE))
		usleep(1000);
	setsockopt(file, SOL_SOCKET, SO_MAX_PACING_RATE, &pace, sizeof(pace));
	if (connect(file, (struct sockaddr *)&place, sizeof(place)) != 0)
		cannot(chain->name, "its sender cannot connect through the chain");
	while (write(file, bytes, sizeof(bytes)) > 0)
		count_sender(file, counts);
	_Exit(0);
}

/* On the CPUs that no stage is on, where there are any, and before other programs: these are other machines. */
static void keep_off_stages(const struct chain_plan *plan)
{
	struct sched_param parameter = { .sched_priority = PRIORITY };
	cpu_set_t set;

	sched_getaffinity(0, sizeof(set), &set);
	for (unsigned s = 0; s < plan->stage_count; s++)
		CPU_CLR((unsigned)plan->stages[s].cpu, &set);
	if (CPU_COUNT(&set))
		sched_setaffinity(0, sizeof(set), &set);
	sched_setscheduler(0, SCHED_FIFO, &parameter); /* without the right to it, as the kernel sees fit */
}

static pid_t start(struct chain_memory *memory, unsigned number, int home, bool sends, int *tun)
{
	const struct plan_chain *chain = &memory->plan->chains[number];
	pid_t pid, manager = getpid();

	if (unshare(CLONE_NEWNET) != 0)
		cannot(chain->name, "there is no right to a network namespace");
	*tun = open_tun(chain, sends ? SENDER : RECEIVER);
	want_ecn(chain->name, memory->plan->ecn);
	pid = fork();
	if (pid < 0)
		cannot(chain->name, "its processes cannot start");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != manager)
			_Exit(EXIT_TESTBED);
		signal(SIGINT, SIG_IGN);
		signal(SIGTERM, SIG_DFL);
		message_before_failure(NULL);
		keep_off_stages(memory->plan);
		if (sends)
			send_all(chain, &memory->tcp[number]);
		receive_all(chain->name, &memory->tcp[number]);
	}
	if (setns(home, CLONE_NEWNET) != 0)
		cannot(chain->name, "the manager cannot go back to its network");
	return pid;
}

struct chain_tcp *chain_tcp_start(struct chain_memory *memory, unsigned chain)
{
	struct chain_tcp *tcp = allocate(1, sizeof(*tcp));
	int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

	tcp->rtt_ticks = (uint64_t)(memory->plan->chains[chain].rtt_us * clock_hz() / 1e6);
	tcp->processes[0] = start(memory, chain, home, false, &tcp->receiver);
	tcp->processes[1] = start(memory, chain, home, true, &tcp->sender);
	close(home);
	return tcp;
}

bool chain_tcp_take(struct chain_tcp *tcp, struct chain_buffer *buffer)
{
	uint8_t *frame = buffer->bytes + HEADROOM;
	ssize_t count;

	/* the device's MTU bounds it; what is no IPv4 (router solicitations) is let go */
	do {
		count = read(tcp->sender, frame + ETHERNET_BYTES, TUN_BYTES);
	} while (count > 0 && frame[ETHERNET_BYTES] >> 4 != 4);
	if (count <= 0)
		return false;
	memset(frame, 0, ETHERNET_BYTES - 2);
	store16(frame + ETHERNET_BYTES - 2, 0x0800);
	buffer->offset = HEADROOM;
	buffer->length = (uint32_t)count + ETHERNET_BYTES;
	return true;
}

void chain_tcp_give(struct chain_tcp *tcp, const struct chain_buffer *buffer)
{
	const uint8_t *packet = buffer->bytes + buffer->offset + ETHERNET_BYTES;
	ssize_t count = write(tcp->receiver, packet, buffer->length - ETHERNET_BYTES);

	(void)count; /* a device that takes no more loses it, as a card would */
}

void chain_tcp_return(struct chain_tcp *tcp, uint64_t now_ticks)
{
	while (tcp->count < RETURNS) {
		struct return_packet *last = &tcp->returns[(tcp->first + tcp->count) % RETURNS];
		ssize_t count = read(tcp->receiver, last->bytes, RETURN_BYTES);

		if (count <= 0)
			break;
		last->length = (uint32_t)count;
		last->due_ticks = now_ticks + tcp->rtt_ticks;
		tcp->count++;
	}
	while (tcp->count && tcp->returns[tcp->first].due_ticks <= now_ticks) {
		const struct return_packet *next = &tcp->returns[tcp->first];
		ssize_t count = write(tcp->sender, next->bytes, next->length);

		(void)count;
		tcp->first = (tcp->first + 1) % RETURNS;
		tcp->count--;
	}
}

bool chain_tcp_mark(struct chain_buffer *buffer)
{
	uint8_t *ip = buffer->bytes + buffer->offset + ETHERNET_BYTES;
	uint16_t before = load16(ip);

	if ((ip[TOS] & ECN_BITS) == ECN_NONE || (ip[TOS] & ECN_BITS) == ECN_CE)
		return false;
	ip[TOS] |= ECN_CE;
	checksum_update16(ip + IP_CHECKSUM_AT, before, load16(ip));
	return true;
}

void chain_tcp_end(struct chain_tcp *tcp)
{
	for (unsigned i = 0; i < 2; i++)
		kill(tcp->processes[i], SIGKILL);
	close(tcp->sender);
	close(tcp->receiver);
}
