/* Messages to people, on stderr. */
#include "message.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void (*before_failure)(void);

void message_before_failure(void (*clean)(void))
{
	before_failure = clean;
}

_Noreturn void fail(int code, const char *hint, const char *format, ...)
{
	va_list arguments;

	fflush(stdout);
	fputs("slomo-nf: error: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, "\nhint: %s\n", hint);
	fflush(stderr);
	if (before_failure)
		before_failure();
	_Exit(code); /* not exit(): other threads may still use what the exit handlers would free */
}

void note(const char *format, ...)
{
	va_list arguments;

	fputs("slomo-nf: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

void *allocate(unsigned long count, unsigned long size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory)
		fail(EXIT_TESTBED, "ask for smaller tables, or run on a machine with more memory",
		     "no memory for %lu x %lu bytes", count, size);
	return memory;
}
