/* How fast the time stamp counter ticks. */
#include "clock.h"

#define MEASURE_NS 20000000u

double clock_hz(void)
{
	static double hz;

	if (hz == 0) {
		uint64_t begin_ns = clock_nanoseconds(), begin = clock_ticks(), now_ns;

		do
			now_ns = clock_nanoseconds();
		while (now_ns - begin_ns < MEASURE_NS);
		hz = (double)(clock_ticks() - begin) * 1e9 / (double)(now_ns - begin_ns);
	}
	return hz;
}
