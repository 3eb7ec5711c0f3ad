plait("pictures-1c2268bc016ebe56.js",[["[WEBP 12x8 e1cd7d26547060b1]",12,8],["[WEBP 12x8 17d9e564bc1fcc55]",12,8]]);
