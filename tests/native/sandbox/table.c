/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the filter of system calls answers, read from its program without entering it: usage is "table", or "landlock DIR"
 * for a process that is locked down and makes a file in DIR. The program is caught on its way to the kernel, and each
 * number of a call, each entry and the arguments that matter are put to it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "filter.h"

enum { CALLS = 1024, LENGTH = 4096 };

static bool catching;
static struct sock_filter code[LENGTH];
static unsigned length;

/* In place of the C library's: the filter does not see whether the kernel has taken it. */
long syscall(long number, ...)
{
	static long (*real)(long, ...);
	long a[6];
	va_list more;

	va_start(more, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(more, long);
	va_end(more);
	if (catching && number == __NR_seccomp && a[0] == SECCOMP_SET_MODE_FILTER) {
		const struct sock_fprog *given = (const void *)a[2];

		length = given->len;
		memcpy(code, given->filter, length * sizeof(code[0]));
		return 0;
	}
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "syscall");
	return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

/* The kernel's machine, as much of it as a filter may use. */
static unsigned ask(const struct seccomp_data *data)
{
	unsigned a = 0;

	for (unsigned i = 0; i < length; i++) {
		const struct sock_filter *c = &code[i];
		bool yes;

		switch (c->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			memcpy(&a, (const char *)data + c->k, sizeof(a));
			continue;
		case BPF_ALU | BPF_AND | BPF_K:
			a &= c->k;
			continue;
		case BPF_RET | BPF_K:
			return c->k;
		case BPF_JMP | BPF_JA:
			i += c->k;
			continue;
		case BPF_JMP | BPF_JEQ | BPF_K:
			yes = a == c->k;
			break;
		case BPF_JMP | BPF_JGE | BPF_K:
			yes = a >= c->k;
			break;
		case BPF_JMP | BPF_JGT | BPF_K:
			yes = a > c->k;
			break;
		case BPF_JMP | BPF_JSET | BPF_K:
			yes = a & c->k;
			break;
		default:
			fprintf(stderr, "instruction %u has code %#x\n", i, c->code);
			exit(2);
		}
		i += yes ? c->jt : c->jf;
	}
	fprintf(stderr, "the program has no end\n");
	exit(2);
}

static const char *ask_about(unsigned arch, unsigned number, unsigned argument, unsigned long long value)
{
	static char text[32];
	struct seccomp_data data = { .nr = (int)number, .arch = arch };
	unsigned action;

	data.args[argument] = value;
	action = ask(&data);
	if (action == SECCOMP_RET_ALLOW)
		return "allow";
	if (action == SECCOMP_RET_KILL_PROCESS)
		return "kill";
	snprintf(text, sizeof(text), "%s %u", (action & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_ERRNO ? "errno" : "other",
		 action & SECCOMP_RET_DATA);
	return text;
}

static void ask_argument(const char *stage, const char *what, unsigned number, unsigned argument,
			 unsigned long long value)
{
	const char *said = ask_about(AUDIT_ARCH_X86_64, number, argument, value);

	printf("%s %s %#llx %s\n", stage, what, value, said);
}

static void print_stage(const char *stage)
{
	static const unsigned spaces[] = { CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET,
					   CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWCGROUP, CLONE_PTRACE };

	for (unsigned i = 0; i < CALLS; i++)
		printf("%s call %u %s\n", stage, i, ask_about(AUDIT_ARCH_X86_64, i, 0, 0));
	for (unsigned i = 0; i < CALLS; i++) {
		printf("%s x32 %u %s\n", stage, i, ask_about(AUDIT_ARCH_X86_64, 0x40000000u + i, 0, 0));
		printf("%s i386 %u %s\n", stage, i, ask_about(AUDIT_ARCH_I386, i, 0, 0));
	}
	for (unsigned i = 0; i < 1 << 16; i++) {
		ask_argument(stage, "ioctl", __NR_ioctl, 1, i);
		ask_argument(stage, "ioctl", __NR_ioctl, 1, 0xc0200000u | i);
	}
	for (unsigned i = 0; i < 256; i++)
		ask_argument(stage, "ioctl", __NR_ioctl, 1, 0x30000000u | i);
	for (unsigned i = 0; i < 50; i++)
		ask_argument(stage, "socket", __NR_socket, 0, i);
	for (unsigned i = 0; i < 128; i++)
		ask_argument(stage, "prctl", __NR_prctl, 0, i);
	ask_argument(stage, "prctl", __NR_prctl, 0, 0x53564d41); /* PR_SET_VMA */
	ask_argument(stage, "clone", __NR_clone, 0, 17 /* SIGCHLD */);
	ask_argument(stage, "clone", __NR_clone, 0, CLONE_THREAD | CLONE_VM | CLONE_SIGHAND);
	for (unsigned i = 0; i < sizeof(spaces) / sizeof(spaces[0]); i++)
		ask_argument(stage, "clone", __NR_clone, 0, CLONE_THREAD | CLONE_VM | CLONE_SIGHAND | spaces[i]);
	printf("%s tgkill own %s\n", stage, ask_about(AUDIT_ARCH_X86_64, __NR_tgkill, 0, (unsigned)getpid()));
	printf("%s tgkill other %s\n", stage, ask_about(AUDIT_ARCH_X86_64, __NR_tgkill, 0, (unsigned)getpid() + 1));
}

static int make_file(const char *directory)
{
	char path[512], *words[] = { (char *)"worker", (char *)VG_OPTION_FILTER "enforce", NULL };
	int error = vg_lock_down(2, words);

	snprintf(path, sizeof(path), "%s/made", directory);
	printf("%d %d\n", error, open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0 ? errno : 0);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return make_file(argv[2]);
	catching = true;
	if (vg_filter_apply(VG_FILTER_START, VG_FILTER_ENFORCE))
		return 1;
	print_stage("start");
	if (vg_filter_apply(VG_FILTER_SERVE, VG_FILTER_ENFORCE))
		return 1;
	print_stage("serve");
	if (vg_filter_apply(VG_FILTER_RELAY, VG_FILTER_ENFORCE))
		return 1;
	print_stage("relay");
	if (vg_filter_apply(VG_FILTER_LINK, VG_FILTER_ENFORCE))
		return 1;
	print_stage("link");
	return 0;
}
