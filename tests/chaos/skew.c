/* Shifts the wall clock of one process by the seconds in the file SKEW_FILE, and no other clock. Preloaded. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
  int result = (int)syscall(SYS_clock_gettime, clock, time);
  const char *path = clock == CLOCK_REALTIME ? getenv("SKEW_FILE") : NULL;
  FILE *file = path ? fopen(path, "r") : NULL;
  long skew = 0;
  if (file && fscanf(file, "%ld", &skew) == 1 && result == 0) time->tv_sec += skew;
  if (file) fclose(file);
  return result;
}
