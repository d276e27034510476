/* SPDX-License-Identifier: Apache-2.0 */
/*
 * train [STEPS]: a network of two layers learns a function by gradient descent, on the GPU and, with the same arithmetic, on
 * the CPU. The losses are alike at each step, the last one is a small part of the first, and so are the weights.
 */
#define PROGRAM "train"
#include "check.h"

#include <cmath>
#include <vector>

constexpr int samples = 64, inputs = 8, hidden = 16;
constexpr float rate = 0.1f;

/* One thread for each element of a matrix of `rows` x `columns`. */
#define ELEMENT(rows, columns)                                                      \
	const int at = blockIdx.x * blockDim.x + threadIdx.x;                       \
	const int row = at / (columns), column = at % (columns);                    \
	if (row >= (rows))                                                          \
		return;

__global__ void forward_hidden(const float *x, const float *w, float *h)
{
	ELEMENT(samples, hidden)
	float sum = 0;

	for (int i = 0; i < inputs; i++)
		sum = fmaf(x[row * inputs + i], w[i * hidden + column], sum);
	h[at] = fmaxf(sum, 0);
}

/* The error of each sample, and its square. */
__global__ void forward_output(const float *h, const float *v, const float *y, float *error, float *loss)
{
	ELEMENT(samples, 1)
	float sum = 0;

	(void)column;
	for (int i = 0; i < hidden; i++)
		sum = fmaf(h[row * hidden + i], v[i], sum);
	error[row] = sum - y[row];
	atomicAdd(loss, error[row] * error[row] / samples);
}

__global__ void backward_output(const float *h, const float *error, float *v, float *to_hidden, float *w, const float *x)
{
	ELEMENT(1, hidden)
	float gradient = 0, old = v[column];

	(void)row;
	for (int s = 0; s < samples; s++) {
		gradient = fmaf(error[s], h[s * hidden + column], gradient);
		to_hidden[s * hidden + column] = h[s * hidden + column] > 0 ? error[s] * old : 0;
	}
	v[column] = old - rate * 2 / samples * gradient;
	for (int i = 0; i < inputs; i++) {
		float sum = 0;

		for (int s = 0; s < samples; s++)
			sum = fmaf(x[s * inputs + i], to_hidden[s * hidden + column], sum);
		w[i * hidden + column] -= rate * 2 / samples * sum;
	}
}

struct network {
	std::vector<float> w, v;
};

static float step_on_cpu(network &net, const std::vector<float> &x, const std::vector<float> &y)
{
	std::vector<float> h(samples * hidden), error(samples);
	network old = net;
	float loss = 0;

	for (int s = 0; s < samples; s++) {
		float sum = 0;

		for (int j = 0; j < hidden; j++) {
			float one = 0;

			for (int i = 0; i < inputs; i++)
				one = std::fmaf(x[s * inputs + i], net.w[i * hidden + j], one);
			h[s * hidden + j] = std::fmax(one, 0.0f);
			sum = std::fmaf(h[s * hidden + j], net.v[j], sum);
		}
		error[s] = sum - y[s];
		loss += error[s] * error[s] / samples;
	}
	for (int j = 0; j < hidden; j++) {
		float gradient = 0;

		for (int s = 0; s < samples; s++)
			gradient = std::fmaf(error[s], h[s * hidden + j], gradient);
		net.v[j] = old.v[j] - rate * 2 / samples * gradient;
		for (int i = 0; i < inputs; i++) {
			float sum = 0;

			for (int s = 0; s < samples; s++)
				sum = std::fmaf(x[s * inputs + i], h[s * hidden + j] > 0 ? error[s] * old.v[j] : 0, sum);
			net.w[i * hidden + j] -= rate * 2 / samples * sum;
		}
	}
	return loss;
}

static float *to_device(const std::vector<float> &values)
{
	float *memory;

	CHECK(cudaMalloc(&memory, values.size() * sizeof(float)));
	CHECK(cudaMemcpy(memory, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
	return memory;
}

static bool is_near(float one, float other)
{
	return std::fabs(one - other) <= 1e-3f * (1 + std::fabs(other));
}

int main(int argc, char **argv)
{
	const int steps = (int)argument(argc, argv, 1, 60);
	std::vector<float> x(samples * inputs), y(samples), zeros(samples * hidden);
	network net = { std::vector<float>(inputs * hidden), std::vector<float>(hidden) };
	random_numbers random(5);
	float first = 0, last = 0;

	for (float &value : x)
		value = (float)(random.next() % 2001) / 1000 - 1;
	for (float &value : net.w)
		value = (float)(random.next() % 2001) / 2000 - 0.5f;
	for (float &value : net.v)
		value = (float)(random.next() % 2001) / 2000 - 0.5f;
	for (int s = 0; s < samples; s++)
		y[s] = x[s * inputs] * x[s * inputs + 1] + 0.5f * x[s * inputs + 2];

	float *dx = to_device(x), *dy = to_device(y), *dw = to_device(net.w), *dv = to_device(net.v);
	float *dh = to_device(zeros), *de = to_device(std::vector<float>(samples)), *dt = to_device(zeros);
	float *dl = to_device(std::vector<float>(1));

	for (int step = 0; step < steps; step++) {
		float loss, expected = step_on_cpu(net, x, y);

		CHECK(cudaMemset(dl, 0, sizeof(float)));
		forward_hidden<<<(samples * hidden + 127) / 128, 128>>>(dx, dw, dh);
		forward_output<<<1, samples>>>(dh, dv, dy, de, dl);
		backward_output<<<1, hidden>>>(dh, de, dv, dt, dw, dx);
		CHECK(cudaMemcpy(&loss, dl, sizeof(loss), cudaMemcpyDeviceToHost));
		if (!is_near(loss, expected))
			FAIL("step %d: the loss is %g, and %g on the CPU", step, loss, expected);
		first = step ? first : loss;
		last = loss;
	}
	if (!(last < first / 2))
		FAIL("it has learnt nothing: the loss was %g, and is %g", first, last);

	std::vector<float> w(inputs * hidden);

	CHECK(cudaMemcpy(w.data(), dw, w.size() * sizeof(float), cudaMemcpyDeviceToHost));
	for (size_t i = 0; i < w.size(); i++)
		if (!is_near(w[i], net.w[i]))
			FAIL("weight %zu is %g, and %g on the CPU", i, w[i], net.w[i]);
	for (float *memory : { dx, dy, dw, dv, dh, de, dt, dl })
		CHECK(cudaFree(memory));
	PASS("the loss was %.4f, and is %.4f after %d steps", first, last, steps);
}
