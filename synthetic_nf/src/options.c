/* The command line. Every knob of knobs.yaml is a flag: data_size_mib is --data-size-mib. */
#include "options.h"

#include "message.h"
#include "nf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MOST 64

enum setting_kind { SETTING_TEXT, SETTING_NUMBER, SETTING_WHOLE, SETTING_FLAG };

struct setting {
	const char *flag;
	enum setting_kind kind;
	size_t offset;
	double least, most;
	const char *words; /* " one two ": allowed texts, each between blanks; NULL: any */
	const char *help;
};

#define AT(field) offsetof(struct options, field)
static const struct setting SETTINGS[] = {
	{ "nf", SETTING_TEXT, AT(nf), 0, 0, NULL, "network function to run (see --list-nfs); default synthetic" },
	{ "cores", SETTING_TEXT, AT(cores), 0, 0, NULL, "CPUs, one per instance, e.g. 1 or 1,2; default: not pinned" },
	{ "pcap", SETTING_TEXT, AT(pcap), 0, 0, NULL, "replay this capture (classic pcap, Ethernet)" },
	{ "tx-pcap", SETTING_TEXT, AT(tx_pcap), 0, 0, NULL, "write what is sent to this capture; one instance only" },
	{ "replay", SETTING_TEXT, AT(replay), 0, 0, " forever once ", "forever (default) or once" },
	{ "packets", SETTING_WHOLE, AT(packets), 0, 1e15, NULL, "stop after so many packets per instance; 0: never" },
	{ "duration-s", SETTING_NUMBER, AT(duration_s), 0, 1e9, NULL, "stop after so many seconds; 0: at a signal" },
	{ "interval-s", SETTING_NUMBER, AT(interval_s), 0.01, 3600, NULL, "seconds between two lines of statistics" },
	{ "pages", SETTING_TEXT, AT(pages), 0, 0, " auto huge transparent small ", "pages of the competitor's data" },
	{ "no-huge", SETTING_FLAG, AT(no_huge), 0, 0, NULL, "DPDK without hugepages (slower)" },
	{ "memory-mib", SETTING_WHOLE, AT(memory_mib), 32, 1e6, NULL, "memory that DPDK may take; default 512" },
	{ "file-prefix", SETTING_TEXT, AT(file_prefix), 0, 0, NULL, "DPDK's name for this process; default slomo-nf-PID" },
	{ "flows", SETTING_WHOLE, AT(flows), 1, 1e6, NULL, "flows of generated traffic; default 1024" },
	{ "tx-first", SETTING_WHOLE, AT(tx_first), 0, 65536, NULL, "frames to send first, for ports that loop (net_ring)" },
	{ "seed", SETTING_WHOLE, AT(seed), 0, 9e15, NULL, "seed of everything that is random; default 1" },
	{ "routes", SETTING_WHOLE, AT(routes), 0, 4e6, NULL, "router: generated prefixes; default 131072" },
	{ "routes-file", SETTING_TEXT, AT(routes_file), 0, 0, NULL, "router: lines `192.0.2.0/24 HOP`" },
	{ "rules", SETTING_WHOLE, AT(rules), 0, 1e5, NULL, "firewall: generated deny rules; default 500" },
	{ "rules-file", SETTING_TEXT, AT(rules_file), 0, 0, NULL,
	  "firewall: lines `deny|allow SRC/LEN DST/LEN SPORT[-SPORT] DPORT[-DPORT] tcp|udp|any`" },
	{ "flow-capacity", SETTING_WHOLE, AT(flow_capacity), 64, 5e7, NULL, "flowstats, nat, maglev: flows that fit" },
	{ "backends", SETTING_WHOLE, AT(backends), 1, 1000, NULL, "maglev: servers behind it; default 8" },
	{ "patterns", SETTING_WHOLE, AT(patterns), 1, 1e5, NULL, "dpi: generated strings; default 3000" },
	{ "patterns-file", SETTING_TEXT, AT(patterns_file), 0, 0, NULL, "dpi: one string per line" },
	{ "regex", SETTING_FLAG, AT(regex), 0, 0, NULL, "dpi: the lines are regular expressions (hyperscan only)" },
	{ "drop-matches", SETTING_FLAG, AT(drop_matches), 0, 0, NULL, "dpi: drop packets that match" },
	{ "crypto-device", SETTING_TEXT, AT(crypto_device), 0, 0, NULL, "ipsec: DPDK vdev; default crypto_openssl0" },
	{ "cycles", SETTING_TEXT, AT(cycles), 0, 0, NULL, "compute: cycles per packet, e.g. 550 or, drawn anew, 120,270,550" },
	{ "cycles-from", SETTING_TEXT, AT(cycles_from), 0, 0, NULL,
	  "compute: cycles from so many seconds after the first packet on, e.g. 15:1650,30:550" },
	{ "chain", SETTING_TEXT, AT(chain), 0, 0, NULL, "run chains of processes by this plan, or by the file behind @" },
	{ "die-with-parent", SETTING_FLAG, AT(die_with_parent), 0, 0, NULL, "end when the parent process ends" },
	{ "calibrate", SETTING_FLAG, AT(calibrate), 0, 0, NULL, "compare the competitor with plain loops, then end" },
};
#define SETTING_COUNT (sizeof(SETTINGS) / sizeof(SETTINGS[0]))

/* data_size_mib -> data-size-mib */
static void flag_of_knob(const char *name, char flag[NAME_MOST])
{
	snprintf(flag, NAME_MOST, "%s", name);
	for (char *letter = flag; *letter; letter++)
		if (*letter == '_')
			*letter = '-';
}

static void print_help(void)
{
	char flag[NAME_MOST];

	puts("usage: slomo-nf [--nf NAME] [knobs] [settings] [-- arguments of DPDK's EAL]\n\nknobs:");
	for (unsigned i = 0; i < KNOB_COUNT; i++) {
		flag_of_knob(KNOB_TABLE[i].name, flag);
		printf("  --%-18s %s", flag, KNOB_TABLE[i].description);
		if (KNOB_TABLE[i].kind == KNOB_KIND_CHOICE)
			printf(" Default %s.\n", KNOB_TABLE[i].choices[(int)KNOB_TABLE[i].initial]);
		else
			printf(" [%s] %g..%g, default %g.\n", KNOB_TABLE[i].unit, KNOB_TABLE[i].least, KNOB_TABLE[i].most,
			       KNOB_TABLE[i].initial);
	}
	puts("\nsettings:");
	for (unsigned i = 0; i < SETTING_COUNT; i++)
		printf("  --%-18s %s\n", SETTINGS[i].flag, SETTINGS[i].help);
	puts("  --vdev SPEC          a DPDK port, e.g. net_null0 or net_memif0,role=client; may be repeated\n"
	     "  --knobs --list-nfs --version --help");
}

static void print_knobs(void)
{
	char flag[NAME_MOST];

	for (unsigned i = 0; i < KNOB_COUNT; i++) {
		flag_of_knob(KNOB_TABLE[i].name, flag);
		printf("{\"name\":\"%s\",\"flag\":\"--%s\",\"unit\":\"%s\",\"least\":%.17g,\"most\":%.17g,\"default\":",
		       KNOB_TABLE[i].name, flag, KNOB_TABLE[i].unit, KNOB_TABLE[i].least, KNOB_TABLE[i].most);
		if (KNOB_TABLE[i].kind == KNOB_KIND_CHOICE)
			printf("\"%s\"}\n", KNOB_TABLE[i].choices[(int)KNOB_TABLE[i].initial]);
		else
			printf("%.17g}\n", KNOB_TABLE[i].initial);
	}
}

static double parse_number(const char *flag, const char *text, double least, double most, bool whole)
{
	char *end;
	double number = strtod(text, &end);

	if (end == text || *end || !isfinite(number))
		fail(EXIT_USAGE, "see slomo-nf --help", "--%s needs a number, got '%s'", flag, text);
	if (number < least || number > most || (whole && number != floor(number)))
		fail(EXIT_USAGE, "see slomo-nf --help", "--%s needs a %snumber of %g..%g, got %s", flag, whole ? "whole " : "",
		     least, most, text);
	return number;
}

static void set_knob(struct options *options, unsigned knob, const char *flag, const char *text)
{
	const struct knob_row *row = &KNOB_TABLE[knob];

	options->knob_given[knob] = true;
	if (row->kind != KNOB_KIND_CHOICE) {
		options->knobs[knob] = parse_number(flag, text, row->least, row->most, row->kind == KNOB_KIND_INTEGER);
		return;
	}
	for (unsigned i = 0; row->choices[i]; i++)
		if (strcmp(text, row->choices[i]) == 0) {
			options->knobs[knob] = i;
			return;
		}
	fail(EXIT_USAGE, row->description, "--%s does not know '%s'", flag, text);
}

static void set_setting(struct options *options, const struct setting *setting, const char *text)
{
	void *place = (char *)options + setting->offset;
	char padded[NAME_MOST];

	if (setting->kind == SETTING_FLAG) {
		*(bool *)place = true;
	} else if (setting->kind == SETTING_TEXT) {
		snprintf(padded, sizeof(padded), " %s ", text);
		if (setting->words && !strstr(setting->words, padded))
			fail(EXIT_USAGE, setting->help, "--%s must be one of%s, got '%s'", setting->flag, setting->words, text);
		*(const char **)place = text;
	} else {
		*(double *)place = parse_number(setting->flag, text, setting->least, setting->most, setting->kind == SETTING_WHOLE);
	}
}

/* Common leading letters: enough to guess what a mistyped flag meant. */
static size_t likeness(const char *left, const char *right)
{
	size_t same = 0;

	while (left[same] && left[same] == right[same])
		same++;
	return same;
}

static _Noreturn void refuse_flag(const char *flag)
{
	char best[NAME_MOST] = "help", name[NAME_MOST], hint[NAME_MOST + 32];
	size_t most = 0;

	for (unsigned i = 0; i < KNOB_COUNT + SETTING_COUNT; i++) {
		flag_of_knob(i < KNOB_COUNT ? KNOB_TABLE[i].name : SETTINGS[i - KNOB_COUNT].flag, name);
		if (likeness(flag, name) > most) {
			most = likeness(flag, name);
			memcpy(best, name, sizeof(best));
		}
	}
	snprintf(hint, sizeof(hint), "did you mean --%s?", best);
	fail(EXIT_USAGE, hint, "there is no flag --%s", flag);
}

/* The text of a flag: behind '=' or the next word. */
static const char *text_of(const char *flag, const char *inlined, int count, char **words, int *position)
{
	if (inlined)
		return inlined;
	if (*position + 1 >= count || strncmp(words[*position + 1], "--", 2) == 0)
		fail(EXIT_USAGE, "see slomo-nf --help", "--%s needs a value", flag);
	return words[++*position];
}

static void apply_flag(struct options *options, const char *flag, const char *inlined, int count, char **words,
		       int *position)
{
	char name[NAME_MOST];

	for (unsigned i = 0; i < KNOB_COUNT; i++) {
		flag_of_knob(KNOB_TABLE[i].name, name);
		if (strcmp(flag, name) == 0) {
			set_knob(options, i, flag, text_of(flag, inlined, count, words, position));
			return;
		}
	}
	for (unsigned i = 0; i < SETTING_COUNT; i++)
		if (strcmp(flag, SETTINGS[i].flag) == 0) {
			bool lone = SETTINGS[i].kind == SETTING_FLAG;

			set_setting(options, &SETTINGS[i], lone ? "" : text_of(flag, inlined, count, words, position));
			return;
		}
	if (strcmp(flag, "vdev") != 0)
		refuse_flag(flag);
	if (options->vdev_count == VDEVS_MOST)
		fail(EXIT_USAGE, "one per instance is enough", "more than %d --vdev", VDEVS_MOST);
	options->vdevs[options->vdev_count++] = text_of(flag, inlined, count, words, position);
}

static void answer_questions(const char *word)
{
	if (strcmp(word, "--help") == 0)
		print_help();
	else if (strcmp(word, "--knobs") == 0)
		print_knobs();
	else if (strcmp(word, "--list-nfs") == 0)
		nf_print_all();
	else if (strcmp(word, "--version") == 0)
		printf("slomo-nf %s (%s build)\n", SLOMO_NF_VERSION, SLOMO_NF_BUILD);
	else
		return;
	exit(0);
}

static struct options defaults(void)
{
	struct options options = {
		.nf = "synthetic", .replay = "forever", .pages = "auto", .crypto_device = "crypto_openssl0", .cycles = "550",
		.interval_s = 1, .memory_mib = 512, .flows = 1024, .seed = 1, .routes = 131072, .rules = 500,
		.patterns = 3000, .backends = 8, .flow_capacity = 131072,
	};

	for (unsigned i = 0; i < KNOB_COUNT; i++)
		options.knobs[i] = KNOB_TABLE[i].initial;
	return options;
}

/* Combinations that make no sense. */
static void check(const struct options *options)
{
	if (strcmp(options->replay, "once") == 0 && !options->pcap)
		fail(EXIT_USAGE, "give --pcap FILE, or --packets N", "--replay once needs a capture");
	if (options->pcap && options->vdev_count)
		fail(EXIT_USAGE, "use one of them", "--pcap and --vdev both say where packets come from");
	if (options->tx_pcap && knob_integer(options, KNOB_INSTANCES) > 1)
		fail(EXIT_USAGE, "use --instances 1", "--tx-pcap holds the packets of one instance only");
}

struct options options_parse(int count, char **words)
{
	struct options options = defaults();
	char flag[NAME_MOST];

	for (int i = 1; i < count; i++) {
		const char *equals = strchr(words[i], '=');

		if (strcmp(words[i], "--") == 0) {
			options.rest = words + i + 1;
			options.rest_count = count - i - 1;
			break;
		}
		answer_questions(words[i]);
		if (strncmp(words[i], "--", 2) != 0)
			fail(EXIT_USAGE, "flags begin with --; DPDK's own arguments stand after a lone --", "unexpected '%s'",
			     words[i]);
		snprintf(flag, sizeof(flag), "%.*s", equals ? (int)(equals - words[i] - 2) : NAME_MOST - 1, words[i] + 2);
		apply_flag(&options, flag, equals ? equals + 1 : NULL, count, words, &i);
	}
	check(&options);
	return options;
}
