/* Classic pcap captures (Ethernet, either byte order, micro- or nanoseconds): read whole, written frame by frame. */
#ifndef SLOMO_PCAP_FILE_H
#define SLOMO_PCAP_FILE_H

#include "traffic.h"

#include <stdint.h>
#include <stdio.h>

/* Read at most 1 GiB and 4 million frames; ends the process (code 2) when the file is no such capture or is empty. */
struct traffic pcap_read(const char *path);

/* Begin a capture / add a frame to it. */
FILE *pcap_create(const char *path);
void pcap_write(FILE *stream, const uint8_t *frame, uint32_t length);

#endif
