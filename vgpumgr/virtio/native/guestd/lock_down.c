/* SPDX-License-Identifier: Apache-2.0 */
/* What a relay may still ask of the kernel when it has its lane. */
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

int agent_lock_down(void)
{
	return 0; /* sanitizers ask for much more, for their reports */
}

#else

#if defined(__x86_64__)
#define MACHINE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define MACHINE AUDIT_ARCH_AARCH64
#else
#error "name the architecture as the kernel's audit does"
#endif

#define LET_THROUGH(name) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int agent_lock_down(void)
{
	static struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		/* the doorbells, and the last word to the agent */
		LET_THROUGH(read),
		LET_THROUGH(write),
		LET_THROUGH(sendto),
		/* waiting */
#ifdef SYS_poll
		LET_THROUGH(poll),
#endif
		LET_THROUGH(ppoll),
		LET_THROUGH(sched_yield),
		LET_THROUGH(nanosleep),
		LET_THROUGH(clock_nanosleep),
		LET_THROUGH(clock_gettime),
		LET_THROUGH(restart_syscall),
		/* the end */
		LET_THROUGH(rt_sigreturn),
		LET_THROUGH(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog filter = { .len = sizeof(rules) / sizeof(rules[0]), .filter = rules };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return -errno;
	return 0;
}

#endif
