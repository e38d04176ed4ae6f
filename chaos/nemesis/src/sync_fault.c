// Preloaded into a node: while the file named by SYNC_FAULT_FILE exists, nothing reaches the disk for sure.
// Every fsync, fdatasync and sync_file_range fails with EIO, as they do after a failed write-back.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

static int failing(void) {
  const char *file = getenv("SYNC_FAULT_FILE");
  int before = errno;
  int there = file != NULL && access(file, F_OK) == 0;
  errno = before;
  return there;
}

static int refuse(void) {
  errno = EIO;
  return -1;
}

typedef int (*sync_one)(int);
typedef int (*sync_range)(int, off64_t, off64_t, unsigned int);

int fsync(int fd) {
  static sync_one real;
  if (real == NULL) real = (sync_one)dlsym(RTLD_NEXT, "fsync");
  return failing() ? refuse() : real(fd);
}

int fdatasync(int fd) {
  static sync_one real;
  if (real == NULL) real = (sync_one)dlsym(RTLD_NEXT, "fdatasync");
  return failing() ? refuse() : real(fd);
}

int sync_file_range(int fd, off64_t from, off64_t bytes, unsigned int flags) {
  static sync_range real;
  if (real == NULL) real = (sync_range)dlsym(RTLD_NEXT, "sync_file_range");
  return failing() ? refuse() : real(fd, from, bytes, flags);
}
