/* A fork server. LD_PRELOAD loads it into a program, where it replaces main().

   Loading an LLVM tool (its libraries, their relocations and constructors) takes longer than processing a small
   file. The server loads the tool once. For each request it forks, and the fork runs main() with the arguments,
   environment, directory and outputs of the request. The fuzzer AFL does the same.

   MLIR_OFFLOAD_FORK_SERVER contains the descriptor of a socket, and the device and inode of the program to fork.
   Other programs run main() normally: a statically linked wrapper passes LD_PRELOAD on to the program that it starts.

   A request is one message on the socket: `struct request`, followed by the arguments and the environment as
   NUL-terminated strings. Four descriptors are attached: the directory, standard output, standard error, and a pipe
   for the answers. An answer is an int32_t: first the process ID (0 if the fork failed), later the status from
   waitpid(). The server exits when the socket is closed.

   toolchain/fork_server.py is the client. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKET_VARIABLE "MLIR_OFFLOAD_FORK_SERVER"
#define MOST_BYTES (1 << 18)
#define MOST_FORKS 256

enum { DIRECTORY, OUTPUT, ERRORS, ANSWER, DESCRIPTORS };
enum entry { OF_PROGRAM, OF_MLIR_TRANSLATE };

struct request {
  uint32_t entry, arguments, variables;
};

struct fork_of_it {
  pid_t pid;
  int answer;
};

typedef int main_function(int, char **, char **);

static main_function *main_of_program;
static struct fork_of_it forks[MOST_FORKS];
static int fork_count;
/* Aligned for `struct request`; the rest of a message is text. */
static uint32_t message[MOST_BYTES / sizeof(uint32_t)];
static char *words[MOST_BYTES / 2];

/* mlir-translate in the process of mlir-opt. Its main() consists of two calls of functions in libMLIR:
   registerToLLVMIRTranslation(), and LogicalResult mlirTranslateMain(int, char **, llvm::StringRef). A StringRef
   is passed as a pointer and a length; a LogicalResult is returned as a byte, 1 for success. */
typedef void register_function(void);
typedef unsigned char translate_function(int, char **, const char *, size_t);
#define REGISTER "_ZN4mlir27registerToLLVMIRTranslationEv"
#define TRANSLATE "_ZN4mlir17mlirTranslateMainEiPPcN4llvm9StringRefE"
static const char translate_title[] = "MLIR Translation Testing Tool";

static int can_enter(uint32_t entry) {
  return entry == OF_PROGRAM || (dlsym(RTLD_DEFAULT, REGISTER) && dlsym(RTLD_DEFAULT, TRANSLATE));
}

static int enter(uint32_t entry, int count, char **arguments) {
  if (entry == OF_PROGRAM)
    return main_of_program(count, arguments, environ);
  ((register_function *)dlsym(RTLD_DEFAULT, REGISTER))();
  translate_function *translate = (translate_function *)dlsym(RTLD_DEFAULT, TRANSLATE);
  return translate(count, arguments, translate_title, sizeof translate_title - 1) == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Exit a program that uses LLVM without its other destructors. They only release memory, which takes 1.5 ms in
   mlir-opt; that of llvm::outs() writes what is still in the buffer. Return in other programs. */
#define STANDARD_OUTPUT "_ZN4llvm4outsEv"
#define DESTROY "_ZN4llvm14raw_fd_ostreamD1Ev"

static int leave(int status) {
  void *(*outs)(void) = (void *(*)(void))dlsym(RTLD_DEFAULT, STANDARD_OUTPUT);
  void (*destroy)(void *) = (void (*)(void *))dlsym(RTLD_DEFAULT, DESTROY);
  if (outs && destroy) {
    destroy(outs());
    fflush(NULL);
    _exit(status);
  }
  return status;
}

static void answer(int descriptor, int32_t value) {
  while (write(descriptor, &value, sizeof value) < 0 && errno == EINTR)
    ;
}

static void report_ends(void) {
  int status;
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
    for (int i = 0; i < fork_count; i++)
      if (forks[i].pid == pid) {
        answer(forks[i].answer, status);
        close(forks[i].answer);
        forks[i] = forks[--fork_count];
        break;
      }
}

/* Split the text of a request into `words`: arguments, NULL, environment, NULL. Return 0 if it is malformed. */
static int split(char *text, const char *end, uint32_t arguments, uint32_t variables) {
  size_t at = 0, count = (size_t)arguments + variables;
  if (count + 2 > sizeof words / sizeof *words || arguments == 0)
    return 0;
  for (size_t i = 0; i < count; i++) {
    char *stop = memchr(text, 0, (size_t)(end - text));
    if (!stop)
      return 0;
    if (i == arguments)
      words[at++] = NULL;
    words[at++] = text;
    text = stop + 1;
  }
  if (variables == 0)
    words[at++] = NULL;
  words[at] = NULL;
  return text == end;
}

/* Receive a request. Return its length, 0 if the socket is closed. */
static ssize_t receive(int socket, int descriptors[DESCRIPTORS]) {
  union {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS)];
  } control;
  struct iovec place = {message, sizeof message};
  struct msghdr got = {.msg_iov = &place, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t length;
  do
    length = recvmsg(socket, &got, MSG_CMSG_CLOEXEC);
  while (length < 0 && errno == EINTR);
  struct cmsghdr *header = length > 0 ? CMSG_FIRSTHDR(&got) : NULL;
  if (!header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int) * DESCRIPTORS))
    return 0;
  memcpy(descriptors, CMSG_DATA(header), sizeof(int) * DESCRIPTORS);
  return length;
}

/* Wait until the caller knows the process ID, because it can only terminate a known fork. Return 0 if it never will. */
static int may_begin(int go[2]) {
  char byte;
  ssize_t length;
  close(go[1]);
  do
    length = read(go[0], &byte, sizeof byte);
  while (length < 0 && errno == EINTR);
  close(go[0]);
  return length == sizeof byte;
}

/* Process requests until the socket is closed. Returns only in forks, with the exit status of main(). */
static int serve(int socket) {
  sigset_t heard, before;
  sigemptyset(&heard);
  sigaddset(&heard, SIGCHLD);
  /* Raised by an answer to a client that has exited. */
  sigaddset(&heard, SIGPIPE);
  sigprocmask(SIG_BLOCK, &heard, &before);
  int ends = signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK);
  if (ends < 0)
    _exit(1);
  for (;;) {
    struct pollfd polled[2] = {{.fd = socket, .events = POLLIN}, {.fd = ends, .events = POLLIN}};
    if (poll(polled, 2, -1) < 0)
      continue;
    struct signalfd_siginfo ended;
    if (polled[1].revents && read(ends, &ended, sizeof ended) > 0)
      report_ends();
    if (!polled[0].revents)
      continue;
    int descriptors[DESCRIPTORS];
    ssize_t length = receive(socket, descriptors);
    if (length == 0)
      _exit(0);
    const struct request *request = (const struct request *)message;
    char *text = (char *)(request + 1), *end = (char *)message + length;
    int fits = text < end && fork_count < MOST_FORKS && can_enter(request->entry) &&
               split(text, end, request->arguments, request->variables);
    int go[2] = {-1, -1};
    pid_t pid = fits && pipe2(go, O_CLOEXEC) == 0 ? fork() : -1;
    if (pid == 0) {
      setpgid(0, 0);
      if (!may_begin(go))
        _exit(1);
      for (int i = 0; i < fork_count; i++)
        close(forks[i].answer);
      int moved = fchdir(descriptors[DIRECTORY]) == 0 && dup2(descriptors[OUTPUT], STDOUT_FILENO) >= 0 &&
                  dup2(descriptors[ERRORS], STDERR_FILENO) >= 0;
      for (int i = 0; i < DESCRIPTORS; i++)
        close(descriptors[i]);
      close(socket);
      close(ends);
      sigprocmask(SIG_SETMASK, &before, NULL);
      environ = words + request->arguments + 1;
      return moved ? leave(enter(request->entry, (int)request->arguments, words)) : 1;
    }
    if (pid > 0) {
      /* Also called in the fork, so that the process group exists before either process continues. */
      setpgid(pid, pid);
      forks[fork_count++] = (struct fork_of_it){pid, descriptors[ANSWER]};
    }
    answer(descriptors[ANSWER], pid > 0 ? pid : 0);
    if (pid > 0 && write(go[1], "", 1) < 0)
      kill(pid, SIGKILL);
    close(go[0]);
    close(go[1]);
    for (int i = 0; i < DESCRIPTORS; i++)
      if (i != ANSWER || pid <= 0)
        close(descriptors[i]);
  }
}

/* Return the socket if this process runs the program in SOCKET_VARIABLE, otherwise -1. */
static int find_socket(void) {
  const char *text = getenv(SOCKET_VARIABLE);
  unsigned long long device, inode;
  int socket;
  struct stat own;
  if (!text || sscanf(text, "%d %llu %llu", &socket, &device, &inode) != 3 || stat("/proc/self/exe", &own) != 0)
    return -1;
  return own.st_dev == device && own.st_ino == inode ? socket : -1;
}

static int server_main(int count, char **arguments, char **variables) {
  int socket = find_socket();
  return socket >= 0 ? serve(socket) : main_of_program(count, arguments, variables);
}

int __libc_start_main(main_function *program, int count, char **arguments, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end) {
  typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
  start_function *start = (start_function *)dlsym(RTLD_NEXT, "__libc_start_main");
  main_of_program = program;
  return start(server_main, count, arguments, init, fini, rtld_fini, stack_end);
}
