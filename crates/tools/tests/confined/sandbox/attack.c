/* What a command inside the sandbox may try. The first argument names the attempt.
 *
 * Ends with 0 when the attempt succeeded; else prints the name of the error, such as EPERM, and ends with 1. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int failed(void) {
    printf("%s\n", strerrorname_np(errno));
    return 1;
}

static int result(long value) { return value < 0 ? failed() : 0; }

static int write_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    return fd < 0 ? failed() : result(write(fd, "x", 1));
}

static int read_file(const char *path) {
    char byte;
    int fd = open(path, O_RDONLY);
    return fd < 0 ? failed() : result(read(fd, &byte, 1));
}

static int connect_tcp(const char *port) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return fd < 0 ? failed() : result(connect(fd, (struct sockaddr *)&to, sizeof to));
}

static int connect_unix(const char *name, int abstract) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    strncpy(to.sun_path + abstract, name, sizeof to.sun_path - 2);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return fd < 0 ? failed() : result(connect(fd, (struct sockaddr *)&to, offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name)));
}

/* Whether any process that can be seen has this text in its environment. */
static int environments(const char *canary) {
    static char text[1 << 16];
    DIR *all = opendir("/proc");
    for (struct dirent *one; all && (one = readdir(all));) {
        char path[300];
        snprintf(path, sizeof path, "/proc/%s/environ", one->d_name);
        int fd = open(path, O_RDONLY);
        if (fd < 0) continue;
        ssize_t length = read(fd, text, sizeof text);
        close(fd);
        if (length > 0 && memmem(text, length, canary, strlen(canary))) return 0;
    }
    errno = ENOENT;
    return failed();
}

static int ptrace_child(void) {
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    int outcome = result(ptrace(PTRACE_SEIZE, child, 0, 0));
    kill(child, SIGKILL);
    return outcome;
}

/* A mount that only this process sees. */
static int mount_unshared(void) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS)) return failed();
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return failed();
    return result(mount("none", "/tmp", "tmpfs", 0, 0));
}

/* A child in new namespaces; it ends at once. */
static int clone_with(unsigned long flags) {
    long child = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) _exit(0);
    return result(child);
}

static int clone3_with(uint64_t flags) {
    struct { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; } args = {.flags = flags, .exit_signal = SIGCHLD};
    long child = syscall(SYS_clone3, &args, sizeof args);
    if (child == 0) _exit(0);
    return result(child);
}

static int fork_many(int count) {
    int outcome = 0, made = 0;
    setpgid(0, 0);
    for (; made < count && outcome == 0; made++) {
        pid_t child = fork();
        if (child == 0) {
            pause();
            _exit(0);
        }
        if (child < 0) outcome = failed();
    }
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    return outcome;
}

static int take_memory(size_t mib) {
    char *memory = malloc(mib << 20);
    if (!memory) return failed();
    for (size_t at = 0; at < mib << 20; at += 4096) ((volatile char *)memory)[at] = 1;
    return 0;
}

static int write_much(const char *path, int mib) {
    static char block[1 << 20];
    signal(SIGXFSZ, SIG_IGN);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return failed();
    for (; mib > 0; mib--)
        if (write(fd, block, sizeof block) != sizeof block) return failed();
    return 0;
}

static int open_many(int count) {
    for (; count > 0; count--)
        if (open("/dev/null", O_RDONLY) < 0) return failed();
    return 0;
}

static int spin(int seconds) {
    struct timespec now;
    do clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while (now.tv_sec < seconds);
    return 0;
}

/* Whether anything but input, output and errors is open. */
static int inherited(void) {
    for (int fd = 3; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0) return 0;
    errno = EBADF;
    return failed();
}

/* Makes a file with this mode by this call. */
static int make(const char *call, unsigned long mode, const char *path) {
    struct open_how how = {.flags = O_WRONLY | O_CREAT, .mode = mode};
#define CALL(name) (strcmp(call, name) == 0)
    if (CALL("openat")) return result(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT, mode));
    if (CALL("openat-nofile")) return result(syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_TMPFILE, mode));
    if (CALL("openat2")) return result(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
    if (CALL("mkdirat")) return result(syscall(SYS_mkdirat, AT_FDCWD, path, mode));
    if (CALL("mknodat")) return result(syscall(SYS_mknodat, AT_FDCWD, path, S_IFREG | mode, 0));
#ifdef SYS_open
    if (CALL("open")) return result(syscall(SYS_open, path, O_WRONLY | O_CREAT, mode));
    if (CALL("open-nofile")) return result(syscall(SYS_open, path, O_WRONLY | O_TMPFILE, mode));
    if (CALL("creat")) return result(syscall(SYS_creat, path, mode));
    if (CALL("mkdir")) return result(syscall(SYS_mkdir, path, mode));
    if (CALL("mknod")) return result(syscall(SYS_mknod, path, S_IFREG | mode, 0));
#endif
    int fd = openat(AT_FDCWD, path, O_RDONLY | O_CREAT, 0600);
    if (fd < 0) return failed();
    if (CALL("fchmod")) return result(syscall(SYS_fchmod, fd, mode));
    if (CALL("fchmodat")) return result(syscall(SYS_fchmodat, AT_FDCWD, path, mode));
    // The kernel ignores the upper half of the argument.
    if (CALL("fchmodat-long")) return result(syscall(SYS_fchmodat, AT_FDCWD, path, 0xffffffff00000000UL | mode));
    if (CALL("fchmodat2")) return result(syscall(452, AT_FDCWD, path, mode, 0));
#ifdef SYS_chmod
    if (CALL("chmod")) return result(syscall(SYS_chmod, path, mode));
#endif
    fprintf(stderr, "there is no call %s\n", call);
    return 2;
}

/* Runs a program for which one system call is not there, as on another kernel. */
static int without(int call, char **program) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return failed();
    execv(program[0], program);
    return failed();
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *with = argc > 2 ? argv[2] : "";
    static char page[4096];
#define IS(name) (strcmp(what, name) == 0)
    if (IS("write")) return write_file(with);
    if (IS("read")) return read_file(with);
    if (IS("tcp")) return connect_tcp(with);
    if (IS("unix")) return connect_unix(with, 0);
    if (IS("abstract")) return connect_unix(with, 1);
    if (IS("environ")) return environments(with);
    if (IS("ptrace")) return ptrace_child();
    if (IS("signal")) return result(kill(atoi(with), SIGCONT));
    if (IS("unshare")) return result(unshare(CLONE_NEWUSER));
    if (IS("mount")) return mount_unshared();
    // On a place that does not exist: outside, as root, nothing may be mounted by a test.
    if (IS("mount-bare")) return result(mount("none", "/nowhere/at/all", "tmpfs", 0, 0));
    if (IS("clone")) return clone_with(CLONE_NEWUSER);
    if (IS("clone3")) return clone3_with(CLONE_NEWUSER);
    if (IS("setns")) return result(setns(open("/proc/self/ns/uts", O_RDONLY), 0));
    if (IS("keyctl")) return result(syscall(SYS_keyctl, 0, -3, 1));
    if (IS("add-key")) return result(syscall(SYS_add_key, "user", "belay", "x", 1, -3));
    if (IS("bpf")) return result(syscall(SYS_bpf, 0, page, 0));
    if (IS("perf")) return result(syscall(SYS_perf_event_open, page, 0, -1, -1, 0));
    if (IS("userfaultfd")) return result(syscall(SYS_userfaultfd, 1));
    if (IS("io_uring")) return result(syscall(SYS_io_uring_setup, 1, page));
    if (IS("process_vm")) return result(syscall(SYS_process_vm_readv, getpid(), 0, 0, 0, 0, 0));
    if (IS("handle")) return result(syscall(SYS_open_by_handle_at, -1, page, 0));
    if (IS("personality")) return result(personality(ADDR_NO_RANDOMIZE));
    if (IS("vsock")) return result(socket(40, SOCK_STREAM, 0));
    if (IS("packet")) return result(socket(17, SOCK_RAW, 0));
    if (IS("type")) return result(ioctl(0, TIOCSTI, "x"));
    if (IS("type-long")) return result(syscall(SYS_ioctl, 0, 0xffffffff00000000UL | TIOCSTI, "x"));
    if (IS("x32")) return result(syscall(0x40000000 | 39));
    if (IS("unknown")) return result(syscall(511));
    if (IS("root")) return geteuid() == 0 ? 0 : (errno = EPERM, failed());
    if (IS("fork")) return fork_many(atoi(with));
    if (IS("memory")) return take_memory(atoi(with));
    if (IS("file")) return write_much(with, atoi(argv[3]));
    if (IS("open")) return open_many(atoi(with));
    if (IS("spin")) return spin(atoi(with));
    if (IS("make")) return make(with, strtoul(argv[3], NULL, 8), argv[4]);
    if (IS("inherited")) return inherited();
    if (IS("without-landlock")) return without(SYS_landlock_create_ruleset, argv + 2);
    if (IS("without-seccomp")) return without(SYS_seccomp, argv + 2);
    if (IS("without-namespaces")) return without(SYS_clone, argv + 2);
    fprintf(stderr, "there is no attempt %s\n", what);
    return 2;
}
