/* SPDX-License-Identifier: Apache-2.0 */
/*
 * textures: arrays and texture objects. What kernels read between texels, beside an array and in its layers
 * is compared with the programming guide's formulas on the CPU, with weights of 8 bits.
 */
#define PROGRAM "textures"
#include "images.h"

#include <cmath>

/* ---- a texture on the CPU */

struct image {
	int size[3], rank;
	std::vector<float> texels;
	cudaTextureAddressMode mode = cudaAddressModeClamp;
	bool normalized = false, linear = false;
	float border = 0;

	float texel(const int at[3]) const
	{
		int i[3] = { 0, 0, 0 };

		for (int k = 0; k < rank; k++) {
			int n = size[k];

			i[k] = at[k];
			if (mode == cudaAddressModeBorder && (i[k] < 0 || i[k] >= n))
				return border;
			if (mode == cudaAddressModeWrap && normalized)
				i[k] = ((i[k] % n) + n) % n;
			else if (mode == cudaAddressModeMirror && normalized) {
				i[k] = ((i[k] % (2 * n)) + 2 * n) % (2 * n);
				i[k] = i[k] < n ? i[k] : 2 * n - 1 - i[k];
			} else
				i[k] = i[k] < 0 ? 0 : i[k] >= n ? n - 1 : i[k];
		}
		return texels[((size_t)i[2] * size[1] + i[1]) * size[0] + i[0]];
	}

	float fetch(const float *coordinates) const
	{
		int low[3] = { 0, 0, 0 };
		double weight[3] = { 0, 0, 0 }, sum = 0;

		for (int k = 0; k < rank; k++) {
			float x = coordinates[k];

			if (normalized)
				x *= (float)size[k];
			if (linear) {
				low[k] = (int)std::floor(x - 0.5f);
				weight[k] = std::floor((x - 0.5f - (float)low[k]) * 256 + 0.5f) / 256;
			} else
				low[k] = (int)std::floor(x);
		}
		for (int corner = 0; corner < (linear ? 1 << rank : 1); corner++) {
			double part = 1;
			int at[3];

			for (int k = 0; k < 3; k++) {
				int up = corner >> k & 1;

				at[k] = low[k] + up;
				part *= up ? weight[k] : 1 - weight[k];
			}
			if (part)
				sum += part * texel(at);
		}
		return (float)sum;
	}
};

static void compare(const char *what, const std::vector<float> &found, const std::vector<float> &wanted)
{
	for (size_t i = 0; i < wanted.size(); i++)
		if (!(std::fabs(found[i] - wanted[i]) <= 1e-5f * (1 + std::fabs(wanted[i]))))
			FAIL("%s: %zu is %g, not %g", what, i, found[i], wanted[i]);
}

/* ---- one, two and three dimensions; all modes */

__global__ void sample(cudaTextureObject_t t, int rank, const float *at, float *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i >= n)
		return;
	at += 3 * i;
	out[i] = rank == 1 ? tex1D<float>(t, at[0]) : rank == 2 ? tex2D<float>(t, at[0], at[1]) :
								  tex3D<float>(t, at[0], at[1], at[2]);
}

enum { POINTS = 200 };

static void check_rank(int rank, random_numbers &random)
{
	image m;
	cudaArray_t array;
	cudaChannelFormatDesc channels = cudaCreateChannelDesc<float>();
	cudaMemcpy3DParms copy{};

	m.rank = rank;
	for (int k = 0; k < 3; k++)
		m.size[k] = k < rank ? 5 + k : 1;
	m.texels.resize((size_t)m.size[0] * m.size[1] * m.size[2]);
	for (auto &f : m.texels)
		f = random.unit() * 100 - 50;
	m.border = 7.25f;
	CHECK(cudaMalloc3DArray(&array, &channels,
				make_cudaExtent(m.size[0], rank > 1 ? m.size[1] : 0, rank > 2 ? m.size[2] : 0)));
	copy.srcPtr = make_cudaPitchedPtr(m.texels.data(), m.size[0] * sizeof(float), m.size[0], m.size[1]);
	copy.dstArray = array;
	copy.extent = make_cudaExtent(m.size[0], m.size[1], m.size[2]);
	copy.kind = cudaMemcpyHostToDevice;
	CHECK(cudaMemcpy3D(&copy));
	for (int how = 0; how < 16; how++) {
		std::vector<float> at(3 * POINTS), wanted(POINTS);

		m.mode = (cudaTextureAddressMode)(how & 3);
		m.linear = how & 4;
		m.normalized = how & 8;
		/* multiples of 1/1024 are where no rounding of coordinates decides; sizes are small */
		for (int i = 0; i < 3 * POINTS; i++)
			at[i] = m.normalized ? ((int)(random.next() % 3072) - 1024 + 0.375f) / 1024 :
					       ((int)(random.next() % 20480) - 6144) / 1024.0f;
		for (int i = 0; i < POINTS; i++)
			wanted[i] = m.fetch(&at[3 * i]);
		device_memory<float> places(at), found(POINTS);
		cudaTextureObject_t t = texture_of(array, reading(m.mode, m.linear, m.normalized));

		sample<<<blocks_for(POINTS, 64), 64>>>(t, rank, places.at, found.at, POINTS);
		std::vector<float> got = found.read();
		if (m.linear && m.normalized) { /* a weight may be rounded the other way where coordinates are */
			for (int i = 0; i < POINTS; i++)
				if (std::fabs(got[i] - wanted[i]) > 100.0f * rank / 256)
					FAIL("rank %d, mode %d: %d is %g, not %g", rank, how, i, got[i], wanted[i]);
		} else
			compare("a texture", got, wanted);
		CHECK(cudaDestroyTextureObject(t));
	}
	CHECK(cudaFreeArray(array));
}

/* ---- element types */

template <typename T> __global__ void read_elements(cudaTextureObject_t t, T *out, int width, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex2D<T>(t, (float)(i % width) + 0.5f, (float)(i / width) + 0.5f);
}

/* An array of elements, written by rows that are apart, is read as it is. */
template <typename T> static void check_elements(random_numbers &random)
{
	enum { W = 13, H = 6, PITCH = 256 };
	cudaChannelFormatDesc channels = cudaCreateChannelDesc<T>(), told;
	std::vector<uint8_t> rows(PITCH * H);
	std::vector<T> wanted(W * H), back(W * H);
	device_memory<T> found(W * H);
	cudaExtent extent;
	unsigned flags;
	cudaArray_t array;

	for (auto &b : rows)
		b = (uint8_t)random.next();
	for (int y = 0; y < H; y++)
		std::memcpy(&wanted[y * W], &rows[y * PITCH], W * sizeof(T));
	CHECK(cudaMallocArray(&array, &channels, W, H));
	CHECK(cudaMemcpy2DToArray(array, 0, 0, rows.data(), PITCH, W * sizeof(T), H, cudaMemcpyHostToDevice));
	CHECK(cudaArrayGetInfo(&told, &extent, &flags, array));
	if (told.x != channels.x || told.w != channels.w || told.f != channels.f || extent.width != W || extent.height != H ||
	    extent.depth || flags)
		FAIL("an array is described otherwise");
	cudaTextureObject_t t = texture_of(array, reading(cudaAddressModeClamp, false, false));

	read_elements<<<2, 64>>>(t, found.at, W, W * H);
	if (std::memcmp(found.read().data(), wanted.data(), W * H * sizeof(T)))
		FAIL("elements of %zu bytes are read otherwise", sizeof(T));
	CHECK(cudaMemcpy2DFromArray(back.data(), W * sizeof(T), array, 0, 0, W * sizeof(T), H, cudaMemcpyDeviceToHost));
	if (std::memcmp(back.data(), wanted.data(), W * H * sizeof(T)))
		FAIL("elements of %zu bytes are copied otherwise", sizeof(T));
	CHECK(cudaDestroyTextureObject(t));
	CHECK(cudaFreeArray(array));
}

__global__ void read_fractions(cudaTextureObject_t t, float4 *out, int n)
{
	int i = threadIdx.x;

	if (i < n)
		out[i] = tex1D<float4>(t, (float)i + 0.5f);
}

/* 8 and 16 bits as numbers from 0 or -1 to 1, and half precision. */
template <typename T> static void check_fractions(const std::vector<T> &elements, const std::vector<float> &wanted,
						  cudaChannelFormatDesc channels, cudaTextureReadMode mode)
{
	int n = (int)elements.size();
	device_memory<float4> found(n);
	cudaArray_t array;

	CHECK(cudaMallocArray(&array, &channels, n));
	CHECK(cudaMemcpyToArray(array, 0, 0, elements.data(), n * sizeof(T), cudaMemcpyHostToDevice));
	cudaTextureObject_t t = texture_of(array, reading(cudaAddressModeClamp, false, false, mode));

	read_fractions<<<1, 64>>>(t, found.at, n);
	std::vector<float> x;
	for (const float4 &f : found.read())
		x.push_back(f.x);
	compare("a fraction", x, wanted);
	CHECK(cudaDestroyTextureObject(t));
	CHECK(cudaFreeArray(array));
}

/* ---- memory */

__global__ void fetch_line(cudaTextureObject_t t, const int *at, int *out, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = tex1Dfetch<int>(t, at[i]);
}

static void check_line(random_numbers &random)
{
	enum { N = 1000 };
	std::vector<int> values(N), at(N);
	cudaResourceDesc r{}, told;
	cudaTextureDesc d{}, asked;
	cudaTextureObject_t t;

	for (int i = 0; i < N; i++) {
		values[i] = (int)random.next();
		at[i] = (int)(random.next() % (N + 200)) - 100;
	}
	device_memory<int> memory(values), places(at), found(N);

	r.resType = cudaResourceTypeLinear;
	r.res.linear.devPtr = memory.at;
	r.res.linear.desc = cudaCreateChannelDesc<int>();
	r.res.linear.sizeInBytes = N * sizeof(int);
	CHECK(cudaCreateTextureObject(&t, &r, &d, nullptr));
	CHECK(cudaGetTextureObjectResourceDesc(&told, t));
	CHECK(cudaGetTextureObjectTextureDesc(&asked, t));
	if (told.resType != cudaResourceTypeLinear || told.res.linear.devPtr != memory.at ||
	    told.res.linear.sizeInBytes != N * sizeof(int) || told.res.linear.desc.x != 32 || asked.filterMode != d.filterMode)
		FAIL("a texture is described otherwise");
	fetch_line<<<blocks_for(N, 128), 128>>>(t, places.at, found.at, N);
	std::vector<int> got = found.read();
	for (int i = 0; i < N; i++)
		if (got[i] != (at[i] >= 0 && at[i] < N ? values[at[i]] : 0))
			FAIL("element %d of a line is %d", at[i], got[i]);
	CHECK(cudaDestroyTextureObject(t));
	REFUSED(cudaDestroyTextureObject(t), cudaErrorInvalidValue);
	r.res.linear.sizeInBytes = (size_t)1 << 40;
	REFUSED(cudaCreateTextureObject(&t, &r, &d, nullptr), cudaErrorInvalidValue);
}

static void check_pitched(random_numbers &random)
{
	image m;
	float *memory;
	size_t pitch;
	cudaResourceDesc r{};
	cudaTextureDesc d = reading(cudaAddressModeClamp, true, false);
	cudaTextureObject_t t;
	std::vector<float> at(3 * POINTS), wanted(POINTS);

	m.rank = 2;
	m.size[0] = 11, m.size[1] = 9, m.size[2] = 1;
	m.linear = true;
	m.texels.resize(99);
	for (auto &f : m.texels)
		f = random.unit();
	CHECK(cudaMallocPitch(&memory, &pitch, 11 * sizeof(float), 9));
	CHECK(cudaMemcpy2D(memory, pitch, m.texels.data(), 44, 44, 9, cudaMemcpyHostToDevice));
	for (int i = 0; i < POINTS; i++) {
		at[3 * i] = (int)(random.next() % 16384) / 1024.0f - 2;
		at[3 * i + 1] = (int)(random.next() % 16384) / 1024.0f - 2;
		wanted[i] = m.fetch(&at[3 * i]);
	}
	r.resType = cudaResourceTypePitch2D;
	r.res.pitch2D.devPtr = memory;
	r.res.pitch2D.desc = cudaCreateChannelDesc<float>();
	r.res.pitch2D.width = 11;
	r.res.pitch2D.height = 9;
	r.res.pitch2D.pitchInBytes = pitch;
	CHECK(cudaCreateTextureObject(&t, &r, &d, nullptr));
	device_memory<float> places(at), found(POINTS);
	sample<<<blocks_for(POINTS, 64), 64>>>(t, 2, places.at, found.at, POINTS);
	compare("pitched memory", found.read(), wanted);
	CHECK(cudaDestroyTextureObject(t));
	r.res.pitch2D.height = 60000;
	REFUSED(cudaCreateTextureObject(&t, &r, &d, nullptr), cudaErrorInvalidValue);
	r.res.pitch2D.pitchInBytes = (size_t)1 << 62;
	REFUSED(cudaCreateTextureObject(&t, &r, &d, nullptr), cudaErrorInvalidValue);
	CHECK(cudaFree(memory));
}

/* ---- layers, gathers, levels */

__global__ void read_layers(cudaTextureObject_t t, float *out, int layers)
{
	int layer = threadIdx.x;

	if (layer < layers)
		out[layer] = tex2DLayered<float>(t, 1.0f, 1.5f, layer);
	if (layer == layers)
		out[layer] = tex2DLayered<float>(t, 1.0f, 1.5f, 100); /* the last one */
}

__global__ void gather(cudaTextureObject_t t, float4 *out)
{
	out[0] = tex2Dgather<float4>(t, 2.0f, 2.0f, 0);
}

static void check_layers()
{
	enum { W = 4, H = 3, L = 5 };
	std::vector<float> values(W * H * L), wanted(L + 1), back(W * H);
	cudaChannelFormatDesc channels = cudaCreateChannelDesc<float>();
	cudaArray_t array, flat;
	cudaMemcpy3DParms copy{}, one{};
	device_memory<float> found(L + 1);
	device_memory<float4> corners(1);

	for (int i = 0; i < W * H * L; i++)
		values[i] = (float)(i * i % 97);
	CHECK(cudaMalloc3DArray(&array, &channels, make_cudaExtent(W, H, L), cudaArrayLayered));
	copy.srcPtr = make_cudaPitchedPtr(values.data(), W * sizeof(float), W, H);
	copy.dstArray = array;
	copy.extent = make_cudaExtent(W, H, L);
	copy.kind = cudaMemcpyHostToDevice;
	CHECK(cudaMemcpy3D(&copy));
	cudaTextureObject_t t = texture_of(array, reading(cudaAddressModeClamp, true, false));

	read_layers<<<1, 32>>>(t, found.at, L);
	for (int l = 0; l <= L; l++) {
		const float *row = &values[((l < L ? l : L - 1) * H + 1) * W];

		wanted[l] = (row[0] + row[1]) / 2;
	}
	compare("a layer", found.read(), wanted);
	CHECK(cudaDestroyTextureObject(t));
	/* one layer into an array of its own */
	CHECK(cudaMallocArray(&flat, &channels, W, H, cudaArrayTextureGather));
	one.srcArray = array;
	one.srcPos = make_cudaPos(0, 0, 3);
	one.dstArray = flat;
	one.extent = make_cudaExtent(W, H, 1);
	one.kind = cudaMemcpyDeviceToDevice;
	CHECK(cudaMemcpy3D(&one));
	CHECK(cudaMemcpyFromArray(back.data(), flat, 0, 0, W * H * sizeof(float), cudaMemcpyDeviceToHost));
	compare("a copied layer", back, std::vector<float>(values.begin() + 3 * W * H, values.begin() + 4 * W * H));
	t = texture_of(flat, reading(cudaAddressModeClamp, false, false));
	gather<<<1, 1>>>(t, corners.at);
	float4 g = corners.read()[0];
	if (g.x != back[2 * W + 1] || g.y != back[2 * W + 2] || g.z != back[W + 2] || g.w != back[W + 1])
		FAIL("a gather is %g %g %g %g", g.x, g.y, g.z, g.w);
	CHECK(cudaDestroyTextureObject(t));
	CHECK(cudaFreeArray(flat));
	CHECK(cudaFreeArray(array));
}

__global__ void read_levels(cudaTextureObject_t t, float *out, int n)
{
	int i = threadIdx.x;

	if (i < n)
		out[i] = tex2DLod<float>(t, 0.5f, 0.5f, i * 0.25f - 1);
}

static void check_levels()
{
	enum { LEVELS = 4, N = 24 };
	cudaChannelFormatDesc channels = cudaCreateChannelDesc<float>();
	cudaMipmappedArray_t array;
	cudaResourceDesc r{};
	cudaTextureDesc d = reading(cudaAddressModeClamp, true, true);
	cudaTextureObject_t t;
	device_memory<float> found(N);
	std::vector<float> wanted(N);

	CHECK(cudaMallocMipmappedArray(&array, &channels, make_cudaExtent(8, 8, 0), LEVELS));
	for (int level = 0; level < LEVELS; level++) {
		std::vector<float> flat((8 >> level) * (8 >> level), (float)(10 * level));
		cudaExtent extent;
		cudaArray_t part;

		CHECK(cudaGetMipmappedArrayLevel(&part, array, level));
		CHECK(cudaArrayGetInfo(nullptr, &extent, nullptr, part));
		if (extent.width != (size_t)(8 >> level) || extent.height != (size_t)(8 >> level))
			FAIL("level %d is %zu wide", level, extent.width);
		CHECK(cudaMemcpyToArray(part, 0, 0, flat.data(), flat.size() * sizeof(float), cudaMemcpyHostToDevice));
	}
	d.mipmapFilterMode = cudaFilterModeLinear;
	d.maxMipmapLevelClamp = 2.5f;
	r.resType = cudaResourceTypeMipmappedArray;
	r.res.mipmap.mipmap = array;
	CHECK(cudaCreateTextureObject(&t, &r, &d, nullptr));
	read_levels<<<1, 32>>>(t, found.at, N);
	for (int i = 0; i < N; i++)
		wanted[i] = 10 * std::fmin(std::fmax(i * 0.25f - 1, 0.0f), 2.5f);
	compare("a level", found.read(), wanted);
	CHECK(cudaDestroyTextureObject(t));
	CHECK(cudaFreeMipmappedArray(array));
}

static void check_refusals()
{
	cudaChannelFormatDesc number = cudaCreateChannelDesc<int>(), three{ 8, 8, 8, 0, cudaChannelFormatKindUnsigned };
	cudaTextureDesc d = reading(cudaAddressModeClamp, true, false);
	cudaResourceDesc r{};
	cudaTextureObject_t t;
	cudaSurfaceObject_t s;
	cudaArray_t array;

	REFUSED(cudaMallocArray(&array, &three, 8, 8), cudaErrorInvalidChannelDescriptor);
	REFUSED(cudaMallocArray(&array, &number, 0, 8), cudaErrorInvalidValue);
	REFUSED(cudaMallocArray(&array, &number, (size_t)1 << 40, (size_t)1 << 40), cudaErrorInvalidValue);
	REFUSED(cudaMalloc3DArray(&array, &number, make_cudaExtent(16384, 16384, 16384)), cudaErrorMemoryAllocation);
	REFUSED(cudaMalloc3DArray(&array, &number, make_cudaExtent(8, 8, 6), cudaArrayCubemap), cudaErrorNotSupported);
	CHECK(cudaMallocArray(&array, &number, 8, 8));
	r.resType = cudaResourceTypeArray;
	r.res.array.array = array;
	REFUSED(cudaCreateTextureObject(&t, &r, &d, nullptr), cudaErrorInvalidValue);
	REFUSED(cudaCreateSurfaceObject(&s, &r), cudaErrorInvalidValue);
	d = reading(cudaAddressModeClamp, false, false);
	d.sRGB = 1;
	REFUSED(cudaCreateTextureObject(&t, &r, &d, nullptr), cudaErrorNotSupported);
	CHECK(cudaFreeArray(array));
	d.sRGB = 0;
	REFUSED(cudaCreateTextureObject(&t, &r, &d, nullptr), cudaErrorInvalidValue);
}

int main()
{
	random_numbers random(12);

	for (int rank = 1; rank <= 3; rank++)
		check_rank(rank, random);
	check_elements<unsigned char>(random);
	check_elements<char2>(random);
	check_elements<uchar4>(random);
	check_elements<short>(random);
	check_elements<ushort2>(random);
	check_elements<short4>(random);
	check_elements<unsigned>(random);
	check_elements<int2>(random);
	check_elements<uint4>(random);
	check_fractions<uint8_t>({ 0, 1, 128, 255 }, { 0, 1 / 255.0f, 128 / 255.0f, 1 },
				 cudaCreateChannelDesc<unsigned char>(), cudaReadModeNormalizedFloat);
	check_fractions<int8_t>({ 0, -128, -127, 127 }, { 0, -1, -1, 1 }, cudaCreateChannelDesc<signed char>(),
				cudaReadModeNormalizedFloat);
	check_fractions<uint16_t>({ 0, 65535, 32768 }, { 0, 1, 32768 / 65535.0f }, cudaCreateChannelDesc<unsigned short>(),
				  cudaReadModeNormalizedFloat);
	check_fractions<int16_t>({ -32768, 32767, 1 }, { -1, 1, 1 / 32767.0f }, cudaCreateChannelDesc<short>(),
				 cudaReadModeNormalizedFloat);
	check_fractions<uint16_t>({ 0x3c00, 0xc000, 0x3555, 1 }, { 1, -2, 0.33325195f, 0x1p-24f },
				  cudaCreateChannelDesc(16, 0, 0, 0, cudaChannelFormatKindFloat), cudaReadModeElementType);
	check_line(random);
	check_pitched(random);
	check_layers();
	check_levels();
	check_refusals();
	PASS("arrays and textures");
}
