// Runs the compiler in a fork of a Python process that has its modules loaded (warm_driver.py).
//
// usage: warm_client SOCKET PYTHON -m MODULE ARGUMENT...
//
// If this process differs from that one in something that a fork would not take over (limits, signals,
// sessions, namespaces, further descriptors, variables that Python or the loader reads when they start),
// it becomes `PYTHON -m MODULE ARGUMENT...` instead.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANDED = 4 }; // standard streams and the working directory

extern char **environ;
static volatile pid_t driver;

static void start_python(char **argv) {
  execv(argv[2], argv + 2);
  perror(argv[2]);
  _exit(127);
}

static int is_plain_process(void) {
  for (int fd = 0; fd < 3; ++fd)
    if (fcntl(fd, F_GETFD) < 0 || isatty(fd))
      return 0;
  const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};
  struct sigaction action;
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; ++i)
    if (sigaction(numbers[i], NULL, &action) != 0 || action.sa_handler != SIG_DFL)
      return 0;
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, NULL, &blocked);
  return sigisemptyset(&blocked);
}

// Programs hand descriptors of their own files down by mistake; those of a job server are pipes.
static int is_handed_nothing_but(int own) {
  DIR *directory = opendir("/proc/self/fd");
  if (!directory)
    return 0;
  int found = 0;
  for (struct dirent *entry; (entry = readdir(directory));) {
    int fd = atoi(entry->d_name);
    struct stat status;
    if (entry->d_name[0] != '.' && fd > 2 && fd != own && fstat(fd, &status) == 0)
      found += S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode);
  }
  closedir(directory);
  return found == 0;
}

static int has_same_file(pid_t server, const char *name) {
  char path[64];
  struct stat ours, theirs;
  snprintf(path, sizeof path, "/proc/self/%s", name);
  int ok = stat(path, &ours) == 0;
  snprintf(path, sizeof path, "/proc/%d/%s", server, name);
  return ok && stat(path, &theirs) == 0 && ours.st_ino == theirs.st_ino &&
         ours.st_dev == theirs.st_dev;
}

static int has_same_limits(pid_t server) {
  for (int kind = 0; kind < RLIM_NLIMITS; ++kind) {
    struct rlimit ours, theirs;
    if (prlimit(0, kind, NULL, &ours) != 0 || prlimit(server, kind, NULL, &theirs) != 0 ||
        memcmp(&ours, &theirs, sizeof ours) != 0)
      return 0;
  }
  cpu_set_t ours, theirs;
  return sched_getaffinity(0, sizeof ours, &ours) == 0 &&
         sched_getaffinity(server, sizeof theirs, &theirs) == 0 && CPU_EQUAL(&ours, &theirs) &&
         getpriority(PRIO_PROCESS, 0) == getpriority(PRIO_PROCESS, server);
}

// All of these make Python read and write UTF-8.
static int is_utf8_locale(const char *variable) {
  const char *value = strchr(variable, '=') + 1;
  return !*value || !strcmp(value, "C") || !strcmp(value, "POSIX") || !strcmp(value, "C.UTF-8");
}

static int is_read_at_start(const char *variable) {
  const char *const prefixes[] = {"PYTHON", "LD_", "TZ", "GLIBC_", "MALLOC_", "ASAN_"};
  if (strncmp(variable, "PYTHONPYCACHEPREFIX=", 20) == 0)
    return 0;
  if (strncmp(variable, "LC_", 3) == 0 || strncmp(variable, "LANG", 4) == 0)
    return !is_utf8_locale(variable);
  for (unsigned i = 0; i < sizeof prefixes / sizeof *prefixes; ++i)
    if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
      return 1;
  return 0;
}

// The server counts those that it has been started with, and all that are read at start are equal.
static int has_same_variables(pid_t server) {
  static char theirs[1 << 20];
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/environ", server);
  FILE *file = fopen(path, "r");
  if (!file)
    return 0;
  size_t size = fread(theirs, 1, sizeof theirs - 1, file);
  fclose(file);
  theirs[size] = 0;
  int balance = 0;
  for (char *one = theirs; one < theirs + size; one += strlen(one) + 1)
    balance += is_read_at_start(one);
  for (char **ours = environ; *ours; ++ours) {
    if (!is_read_at_start(*ours))
      continue;
    int found = 0;
    for (char *one = theirs; one < theirs + size && !found; one += strlen(one) + 1)
      found = strcmp(one, *ours) == 0;
    if (!found)
      return 0;
    --balance;
  }
  return balance == 0;
}

static int connect_to(const char *path, pid_t *server) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  struct ucred peer;
  socklen_t size = sizeof peer;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
    return -1;
  *server = peer.pid;
  return fd;
}

static void must(int ok, const char *what) {
  if (ok)
    return;
  perror(what);
  _exit(127);
}

static uint32_t add_words(FILE *text, char **words) {
  uint32_t count = 0;
  for (; words[count]; ++count)
    fwrite(words[count], 1, strlen(words[count]) + 1, text);
  return count;
}

static void send_call(int fd, char **arguments) {
  char *content;
  size_t size;
  FILE *text = open_memstream(&content, &size);
  uint32_t count = add_words(text, arguments);
  add_words(text, environ);
  fclose(text);
  uint32_t head[4] = {(uint32_t)size, count, umask(0), (uint32_t)getpgrp()};
  int handed[HANDED] = {0, 1, 2, open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
  must(handed[3] >= 0, "working directory");
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof handed)];
  } control = {0};
  struct iovec part = {head, sizeof head};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                           .msg_controllen = sizeof control};
  control.header = (struct cmsghdr){CMSG_LEN(sizeof handed), SOL_SOCKET, SCM_RIGHTS};
  memcpy(CMSG_DATA(&control.header), handed, sizeof handed);
  must(sendmsg(fd, &message, MSG_NOSIGNAL) == sizeof head, "sendmsg");
  for (size_t done = 0; done < size;) {
    ssize_t count = send(fd, content + done, size - done, MSG_NOSIGNAL);
    must(count > 0, "send");
    done += (size_t)count;
  }
}

static int32_t receive(int fd) {
  int32_t number;
  ssize_t count;
  do
    count = recv(fd, &number, sizeof number, MSG_WAITALL);
  while (count < 0 && errno == EINTR);
  must(count == sizeof number, "the driver's server ended");
  return number;
}

static void forward(int number) { kill(driver, number); }

int main(int argc, char **argv) {
  if (argc < 5)
    return 127;
  pid_t server = 0;
  int fd = is_plain_process() ? connect_to(argv[1], &server) : -1;
  if (fd < 0 || getsid(0) != getsid(server) || !is_handed_nothing_but(fd) || !has_same_file(server, "ns/mnt") ||
      !has_same_file(server, "ns/user") || !has_same_file(server, "ns/net") ||
      !has_same_file(server, "ns/pid") || !has_same_file(server, "root") ||
      !has_same_limits(server) || !has_same_variables(server))
    start_python(argv);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
  send_call(fd, argv + 5);
  driver = receive(fd);
  struct sigaction action = {.sa_handler = forward};
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  sigaction(SIGHUP, &action, NULL);
  sigprocmask(SIG_UNBLOCK, &all, NULL);
  int status = receive(fd);
  if (!WIFSIGNALED(status))
    _exit(WEXITSTATUS(status));
  signal(WTERMSIG(status), SIG_DFL);
  const struct rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  kill(getpid(), WTERMSIG(status));
  _exit(128 + WTERMSIG(status));
}
