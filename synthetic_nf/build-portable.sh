#!/bin/sh
# Build slomo-nf without DPDK, meson or hyperscan: a C compiler is enough.
# usage: build-portable.sh [OUTPUT]        (default ./slomo-nf-portable; the compiler is $CC, else cc)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
output=${1:-slomo-nf-portable}
compiler=${CC:-cc}
if ! command -v "$compiler" >/dev/null 2>&1; then
	echo "build-portable.sh: there is no C compiler '$compiler'" >&2
	echo "hint: install gcc, or set CC" >&2
	exit 3
fi
case $output in
/*) ;;
*) output=$PWD/$output ;;
esac
cd "$here/src"
# shellcheck disable=SC2086  # CFLAGS is a list of words
exec "$compiler" -std=gnu11 -O3 -Wall -Wextra -Wno-maybe-uninitialized ${CFLAGS:-} -o "$output" \
	main.c options.c message.c clock.c cores.c memory.c histogram.c statistics.c worker.c calibrate.c \
	pcap_file.c traffic.c text_file.c headers.c flow_burst.c access_patterns.c \
	nf_registry.c nf_synthetic.c nf_l2fwd.c nf_router.c nf_firewall.c nf_flowstats.c nf_nat.c nf_maglev.c nf_dpi.c nf_compute.c \
	chain.c chain_children.c chain_groups.c chain_log.c chain_marks.c chain_mbufs_plain.c chain_memory.c chain_plan.c chain_report.c chain_ring_plain.c \
	chain_source.c chain_stage.c chain_tcp.c \
	platform_plain.c packet_io_plain.c lpm_plain.c classifier_plain.c flow_table_plain.c matcher_plain.c -pthread
